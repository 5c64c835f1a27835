package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// start runs the agent against a dispatcher in this process and returns its host.
func start(t *testing.T) *harp.Host {
	t.Helper()
	dir := t.TempDir()
	ca, err := devca.Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.WriteFiles(dir, "web01", transport.Identity{Role: transport.RoleAgent, Name: "web01"}); err != nil {
		t.Fatal(err)
	}
	tc, err := ca.TLS(transport.Identity{Role: transport.RoleDispatcher, Name: "main"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.Open(t.Context(), memory.Open(nil), dispatcher.Config{
		Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Serve(ctx, l, tc); err != nil {
			t.Errorf("dispatcher: %v", err)
		}
	})
	running.Go(func() {
		file := func(name string) string { return filepath.Join(dir, name) }
		c := config{name: "web01", dispatcher: l.Addr().String(), cert: file("web01.crt"), key: file("web01.key"), ca: file("ca.crt")}
		if err := run(ctx, c); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := d.Shutdown(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return d.Caller().Host("web01")
}

func TestChecksum(t *testing.T) {
	web01 := start(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "a", "b.txt": "b", "c.log": "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	job, err := Checksum.Call(t.Context(), web01, ChecksumArgs{Folder: dir, Pattern: "*.txt"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for sum, err := range Checksum.Follow(t.Context(), job, harp.Since(0)) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, sum.Name)
		if sum.Name == "a.txt" && sum.SHA256 != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
			t.Errorf("the sum of a is %s", sum.SHA256)
		}
	}
	if result, err := Checksum.Get(t.Context(), job); err != nil || result.Files != 2 || len(names) != 2 {
		t.Errorf("result %+v, %v, records of %q", result, err, names)
	}
}

func TestChecksumFails(t *testing.T) {
	web01 := start(t)
	for args, want := range map[ChecksumArgs]string{
		{Folder: "/does/not/exist"}:                      "not_found",
		{Folder: filepath.Dir(os.Args[0]), Pattern: "["}: "bad_pattern",
	} {
		job, err := Checksum.Call(t.Context(), web01, args)
		if err != nil {
			t.Fatal(err)
		}
		var failed *harp.RemoteError
		if _, err := job.Get(t.Context()); !errors.As(err, &failed) || failed.Type != want {
			t.Errorf("%+v failed with %v, want %s", args, err, want)
		}
	}
	if _, err := web01.Call(t.Context(), Checksum.Name, harp.Args{"file": 1}); err != nil && !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("wrong arguments are %v", err)
	}
}
