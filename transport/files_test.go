package transport_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

func TestLoadTLS(t *testing.T) {
	dir := t.TempDir()
	for base, id := range map[string]transport.Identity{"agent": agentID, "main": dispatcherID} {
		if err := testCA.WriteFiles(dir, base, id); err != nil {
			t.Fatal(err)
		}
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	client, err := transport.LoadTLS(path("agent.crt"), path("agent.key"), path("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := transport.LoadTLS(path("main.crt"), path("main.key"), path("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if clientErr, serverErr := handshake(t, client, server); clientErr != nil || serverErr != nil {
		t.Errorf("client: %v, server: %v", clientErr, serverErr)
	}
	if info, err := os.Stat(path("agent.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info.Mode(), err)
	}
}

func TestLoadTLSNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	if err := testCA.WriteFiles(dir, "a", agentID); err != nil {
		t.Fatal(err)
	}
	if err := testCA.WriteFiles(dir, "b", agentID); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("junk"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	// An authority is a certificate without an identity.
	ca := filepath.Join(t.TempDir(), "authority")
	if _, err := devca.Open(ca, fleet); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cert, key, ca string
		named         string
		is            error
	}{
		{path("none"), path("a.key"), path("ca.crt"), "none", fs.ErrNotExist},
		{path("a.crt"), path("none"), path("ca.crt"), "none", fs.ErrNotExist},
		{path("a.crt"), path("a.key"), path("none"), "none", fs.ErrNotExist},
		{path("junk"), path("a.key"), path("ca.crt"), "junk", nil},
		{path("a.crt"), path("junk"), path("ca.crt"), "junk", nil},
		{path("a.crt"), path("b.key"), path("ca.crt"), "b.key", nil},
		{path("a.crt"), path("a.key"), path("junk"), "junk", nil},
		{filepath.Join(ca, "ca.key"), filepath.Join(ca, "ca.key"), path("ca.crt"), "ca.key", transport.ErrIdentity},
	} {
		_, err := transport.LoadTLS(c.cert, c.key, c.ca)
		if err == nil || !strings.Contains(err.Error(), c.named) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s, %s, %s: %v", filepath.Base(c.cert), filepath.Base(c.key), filepath.Base(c.ca), err)
		}
	}
}
