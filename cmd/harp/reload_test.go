package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Both ends see a certificate that was replaced, from the next connection on.
func TestCertificateIsReplaced(t *testing.T) {
	ca, err := devca.Open(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(role transport.Role, name string) *tls.Config {
		tc, err := ca.TLS(transport.Identity{Fleet: "test", Role: role, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return tc
	}
	var server, client certificate
	listening, dialling := server.live(issue(transport.RoleDispatcher, "one")), client.live(issue(transport.RoleAgent, "one"))
	first := greet(t, listening, dialling)
	if again := greet(t, listening, dialling); again != first {
		t.Errorf("without a change the peers are %v, then %v", first, again)
	}
	server.replace(issue(transport.RoleDispatcher, "two"))
	client.replace(issue(transport.RoleAgent, "two"))
	second := greet(t, listening, dialling)
	if second[0] == first[0] || second[1] == first[1] {
		t.Errorf("after the change the peers are %v, they were %v", second, first)
	}
}

// greet connects and returns the fingerprints of server and client, as the other side
// sees them.
func greet(t *testing.T, listening, dialling *tls.Config) (seen [2]string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answered := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			answered <- err
			return
		}
		conn, err := transport.Server(t.Context(), nc, listening, map[string]transport.Role{transport.ProtocolAgent: transport.RoleAgent})
		if err == nil {
			seen[1] = conn.Peer().Fingerprint
			defer conn.Close()
		}
		answered <- err
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Client(t.Context(), nc, dialling, transport.ProtocolAgent, transport.RoleDispatcher)
	if err == nil {
		seen[0] = conn.Peer().Fingerprint
		defer conn.Close()
	}
	if err := errors.Join(err, <-answered); err != nil {
		t.Fatal(err)
	}
	return seen
}

// A folder that takes the place of another is watched as the one before.
func TestFolderIsWatched(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "procedures")
	for _, name := range []string{"procedures", "next", "other"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(parent, path), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(parent, from), filepath.Join(parent, to)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan []string, 100)
	wait := onChange(ctx, dir, quiet, func() {
		names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Error(err)
		}
		changes <- names
	})
	defer wait()
	defer cancel()
	until := func(names ...string) {
		t.Helper()
		for got := range changes {
			for i, path := range got {
				got[i] = filepath.Base(path)
			}
			if slices.Equal(got, names) {
				return
			}
		}
	}

	write("procedures/a.yaml")
	until("a.yaml")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	until()
	write("next/b.yaml")
	rename("procedures", "old")
	rename("next", "procedures")
	until("b.yaml")
	write("procedures/c.yaml")
	until("b.yaml", "c.yaml")
}
