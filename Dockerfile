# CoreDNS with fastudp, as a user without rights.
#   docker build -t coredns-fastudp . && docker run --rm -p 53:53/udp -p 53:53/tcp -v $PWD/Corefile:/Corefile coredns-fastudp
FROM golang:1.26 AS build
RUN apt-get update && apt-get install -y --no-install-recommends libcap2-bin
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /coredns ./cmd/coredns
# The one capability, for port 53. Where all are dropped it must be added again (--cap-add=NET_BIND_SERVICE),
# or the program does not start; a port above 1023 needs neither it nor this line.
RUN setcap cap_net_bind_service=+ep /coredns

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /coredns /coredns
# A number, so that Kubernetes can tell that it is not root's (runAsNonRoot).
USER 65532:65532
# So that a Corefile names files from the root, as in CoreDNS's own image.
WORKDIR /
EXPOSE 53 53/udp
ENTRYPOINT ["/coredns"]
CMD ["-conf", "/Corefile"]
