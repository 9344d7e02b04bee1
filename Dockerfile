# Targets: web, worker, modelsim. The template code is committed, so that building needs Go and npm alone.

FROM node:22-bookworm-slim AS assets
WORKDIR /src/static
COPY static/package.json static/package-lock.json static/.npmrc ./
RUN npm ci --no-progress
COPY static/dist ./dist
RUN npm run --silent build

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
COPY --from=assets /src/static/dist ./static/dist
# Static programs: the runtime image may differ from the build image.
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go run ./static/chroma static/dist/chroma.css \
 && go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/ ./cmd/...

FROM debian:bookworm-slim AS base
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 forkyard
USER forkyard
WORKDIR /home/forkyard

FROM base AS modelsim
COPY --from=build /out/modelsim /usr/local/bin/
EXPOSE 8089
ENTRYPOINT ["/usr/local/bin/modelsim"]

# What the tools of an agent call: both web (main turns) and worker (forks) execute them.
FROM base AS agent
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends bash bubblewrap git ripgrep \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o forkyard -g forkyard /data /workspaces
USER forkyard
# Volumes that are new take owner and mode from these directories.
VOLUME ["/data", "/workspaces"]
ENV FORKYARD_DATA_DIR=/data FORKYARD_WORKSPACES=/workspaces

FROM agent AS worker
COPY --from=build /out/worker /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/worker"]

# Last, so that a build without a target makes the program that people look at.
FROM agent AS web
COPY --from=build /out/web /usr/local/bin/
ENV FORKYARD_ADDR=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/web"]
