# The gateway as an image: pinned packages, an ordinary user, and a redis-server for the demo.
#   docker build -t leaderboard-gateway .
#   docker run --rm -p 8080:8080 leaderboard-gateway demo
#   docker run --rm -p 8080:8080 -v ./gateway.toml:/etc/leaderboard-gateway/gateway.toml:ro leaderboard-gateway
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN python3 -m venv /opt/leaderboard-gateway
ENV PATH=/opt/leaderboard-gateway/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY requirements.txt requirements-dev.txt ./
RUN pip install -r requirements.txt && pip install -c requirements-dev.txt setuptools
COPY pyproject.toml README.md LICENSE ./
COPY cdn cdn
COPY gateway gateway
RUN pip install --no-deps --no-build-isolation . && pip uninstall -y setuptools pip

FROM ${BASE}
# For `demo` only: `serve` reads from your Redis.
RUN apt-get update \
 && apt-get install -y --no-install-recommends redis-server \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/leaderboard-gateway --shell /usr/sbin/nologin gateway \
 && install -d -o gateway -g gateway -m 750 /var/lib/leaderboard-gateway \
 && install -d /etc/leaderboard-gateway
COPY --from=build /opt/leaderboard-gateway /opt/leaderboard-gateway
ENV PATH=/opt/leaderboard-gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GATEWAY_SERVER__HOST=0.0.0.0 \
    GATEWAY_SERVER__PORT=8080 \
    GATEWAY_SERVER__ADMIN=0.0.0.0:9464 \
    GATEWAY_LAST_KNOWN__STORE=file:///var/lib/leaderboard-gateway
# By number, so that an orchestrator can see that it is not root.
USER 10001
WORKDIR /var/lib/leaderboard-gateway
VOLUME /var/lib/leaderboard-gateway
# 9464 is for operators: do not publish it.
EXPOSE 8080 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
  CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['GATEWAY_SERVER__PORT']}/livez\", timeout=4)"]
ENTRYPOINT ["leaderboard-gateway"]
CMD ["serve", "--config", "/etc/leaderboard-gateway/gateway.toml"]
