// The programs that classic OLM expects in its images besides its own: opm, cp and grpc_health_probe. One program with
// three names, built with the libraries of a copy of classic OLM (hack/classic.d/build.sh).
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/cache"
	"github.com/operator-framework/operator-registry/pkg/configmap"
	"github.com/operator-framework/operator-registry/pkg/server"
)

// maxBundle is the maximum size of a bundle in a ConfigMap.
const maxBundle = 1 << 20

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(program string, arguments []string) error {
	switch {
	case program == "cp" && len(arguments) >= 2:
		return copyFile(arguments[len(arguments)-2], arguments[len(arguments)-1])
	case program == "grpc_health_probe":
		return probe("localhost:50051")
	case program == "opm" && len(arguments) == 2 && arguments[0] == "serve":
		return serve(arguments[1])
	case program == "opm" && len(arguments) >= 3 && arguments[2] == "extract":
		return extract(arguments[3:])
	}
	return fmt.Errorf("unknown command: %s %q", program, arguments)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Close()
}

// extract writes the bundle in folder -m to the ConfigMap -c in namespace -n.
func extract(arguments []string) error {
	values := map[string]string{}
	for i := 0; i+1 < len(arguments); i++ {
		values[arguments[i]] = arguments[i+1]
	}
	writer := configmap.NewConfigMapLoader(values["-c"], values["-n"], values["-m"], true, "")
	return writer.Populate(maxBundle)
}

// serve serves a folder of file-based catalogs.
func serve(folder string) error {
	state, err := os.MkdirTemp("", "cache-")
	if err != nil {
		return err
	}
	store, err := cache.New(state)
	if err != nil {
		return err
	}
	if err := cache.LoadOrRebuild(context.Background(), store, os.DirFS(folder)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":50051")
	if err != nil {
		return err
	}
	serving := grpc.NewServer()
	api.RegisterRegistryServer(serving, server.NewRegistryServer(store))
	health.RegisterHealthServer(serving, server.NewHealthServer())
	return serving.Serve(listener)
}

func probe(address string) error {
	deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = health.NewHealthClient(connection).Check(deadline, &health.HealthCheckRequest{})
	return err
}
