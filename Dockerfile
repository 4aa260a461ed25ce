# The images of our servers for those who have a container engine; hack/image makes them without one.
#   docker build --target catalogd -t REPOSITORY/catalogd .
#   docker build --target operator-controller -t REPOSITORY/operator-controller .
FROM docker.io/library/rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# What a server needs in an otherwise empty image: itself, the loader and libraries that ldd names, CA certificates, users.
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
# By default glibc keeps freed memory apart for each of many threads: a third of what a server takes.
ENV MALLOC_ARENA_MAX=1
# Numeric, so that runAsNonRoot can be decided from the image alone.
USER 65532:65532

FROM base AS catalogd
COPY --from=build /images/catalogd /
ENTRYPOINT ["/catalogd"]

FROM base AS operator-controller
COPY --from=build /images/operator-controller /
ENTRYPOINT ["/operator-controller"]
