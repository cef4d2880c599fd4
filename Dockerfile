# The signature directory: serves the warehouse in the volume /data. `docker compose up` runs it.
# The root file system may be read-only; only /data and /tmp are written to.

FROM python:3.11-slim AS build
RUN python -m venv /opt/signature-directory
ENV PATH=/opt/signature-directory/bin:$PATH
COPY . /source
RUN pip install --no-cache-dir --disable-pip-version-check --only-binary :all: \
        --constraint /source/constraints.txt '/source[fast]' \
    && sigdir compile

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent signatures \
    && install --directory --owner=signatures /data
COPY --from=build /opt/signature-directory /opt/signature-directory
ENV PATH=/opt/signature-directory/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SIGDIR_HOST=0.0.0.0 \
    SIGDIR_WAREHOUSE=/data
# A number, so that Kubernetes sees without the image's list of users that it is not root.
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"]
ENTRYPOINT ["sigdir"]
CMD ["serve"]
