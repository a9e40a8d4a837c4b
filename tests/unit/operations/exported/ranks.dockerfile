FROM docker.io/library/python:3.11-slim
LABEL dtctl.cluster="ranks" dtctl.code="c0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0de"
WORKDIR /workspace
COPY . /workspace
