# Two steps: build a static binary, then an image with nothing but that binary, its time zones and certificates.
# docker build --build-arg VERSION=v0.1.0 -t stockgate:v0.1.0 .
FROM golang:1.26 AS build
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /stockgate .

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="stockgate" \
      org.opencontainers.image.description="Ingress gateway that admits only as many orders as there is stock" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /zoneinfo.zip
COPY --from=build /stockgate /stockgate
ENV ZONEINFO=/zoneinfo.zip
# Not root, and nothing is written: run it with a read-only root file system.
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["/stockgate"]
CMD ["serve", "--config", "/etc/stockgate/config.yaml"]
