FROM docker.io/x/y:1
LABEL dtctl.cluster="ring" dtctl.code="c0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0de"
WORKDIR /workspace
COPY . /workspace
