# The images of our servers for those who have a container engine; hack/image makes them without one.
#   docker build --target catalogd -t REPOSITORY/catalogd .
#   docker build --target operator-controller -t REPOSITORY/operator-controller .
FROM docker.io/library/rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --locked --release --package catalogd --package operator-controller \
    && cp /target/release/catalogd /target/release/operator-controller /usr/local/bin/

FROM docker.io/library/debian:bookworm-slim AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# By default glibc keeps freed memory apart for each of many threads: a third of what a server takes.
ENV MALLOC_ARENA_MAX=1
# Numeric, so that runAsNonRoot can be decided from the image alone.
USER 65532:65532

FROM base AS catalogd
COPY --from=build /usr/local/bin/catalogd /catalogd
ENTRYPOINT ["/catalogd"]

FROM base AS operator-controller
COPY --from=build /usr/local/bin/operator-controller /operator-controller
ENTRYPOINT ["/operator-controller"]
