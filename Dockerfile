# Images of catalogd and operator-controller, built with a container engine. hack/image builds them without one.
#   docker build --target catalogd -t REPOSITORY/catalogd .
#   docker build --target operator-controller -t REPOSITORY/operator-controller .
FROM docker.io/library/rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# Content of each image: the server, the loader and libraries that ldd lists, CA certificates, and /etc/passwd.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --locked --release --package catalogd --package operator-controller \
    && for server in catalogd operator-controller; do \
      root=/images/$server \
      && mkdir -p $root/etc/ssl/certs $root/tmp && chmod 1777 $root/tmp \
      && cp /target/release/$server $root/ \
      && ldd $root/$server | grep -o '/[^ ]*' | sort -u | xargs cp --dereference --parents --target-directory $root \
      && cp /etc/ssl/certs/ca-certificates.crt $root/etc/ssl/certs/ \
      && echo 'nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin' >$root/etc/passwd || exit 1; \
    done

FROM scratch AS base
# One malloc arena: with the default of glibc, freed memory in per-thread arenas is a third of the memory of a server.
ENV MALLOC_ARENA_MAX=1
# Numeric, because the kubelet checks runAsNonRoot against the image.
USER 65532:65532

FROM base AS catalogd
COPY --from=build /images/catalogd /
ENTRYPOINT ["/catalogd"]

FROM base AS operator-controller
COPY --from=build /images/operator-controller /
ENTRYPOINT ["/operator-controller"]
