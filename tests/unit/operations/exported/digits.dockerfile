FROM docker.io/library/python:3.11-slim
LABEL dtctl.cluster="digits" dtctl.code="c0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0dec0de"
WORKDIR /workspace
COPY ["requirements.txt", "./"]
RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "-r", "requirements.txt"]
COPY . /workspace
