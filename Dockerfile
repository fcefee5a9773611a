# Reverie with every environment suite, set up as `make setup-suites` does it.
#   docker build -t reverie .                               for the CPU
#   docker build -t reverie --build-arg TORCH=cuda .        for NVIDIA GPUs (docker run --gpus all)
ARG TORCH=cpu

FROM python:3.11-slim-bookworm AS base
# make and gcc: the set-up, and torch.compile; the libraries: MuJoCo and games draw without a screen
RUN apt-get update \
    && apt-get install -y --no-install-recommends make gcc g++ libc6-dev libegl1 libgl1 libosmesa6 \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

FROM base AS cpu
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

FROM base AS cuda
# torch from PyPI brings CUDA along; the driver comes from the machine

FROM ${TORCH}
WORKDIR /reverie
COPY . .
RUN make setup-suites
ENV PATH=/reverie/.venv/bin:$PATH
ENTRYPOINT ["reverie"]
CMD ["train"]
