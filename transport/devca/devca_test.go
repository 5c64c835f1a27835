package devca

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/transport"
)

var web01 = transport.Identity{Fleet: "dev", Role: transport.RoleAgent, Name: "web01"}

func open(t *testing.T, dir string) *CA {
	t.Helper()
	ca, err := Open(dir, "dev")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func leafOf(t *testing.T, ca *CA, id transport.Identity) tls.Certificate {
	t.Helper()
	config, err := ca.TLS(id)
	if err != nil {
		t.Fatal(err)
	}
	return config.Certificates[0]
}

func TestOpenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	first, again := open(t, dir), open(t, dir)
	if !first.pair.cert.Equal(again.pair.cert) {
		t.Error("the authority was made twice")
	}
	if !leafOf(t, first, web01).Leaf.Equal(leafOf(t, again, web01).Leaf) {
		t.Error("the certificate was made twice")
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]os.FileMode{true: 0o644, false: 0o600}[f.Name() == certFile]; info.Mode().Perm() != want {
			t.Errorf("%s is %v", f.Name(), info.Mode())
		}
	}
	if got := strings.Join(names, " "); got != "agent-web01.pem ca.crt ca.key" {
		t.Errorf("the folder has %s", got)
	}
}

// Several processes that start at once have one authority.
func TestOpenAtOnce(t *testing.T) {
	dir := t.TempDir()
	cas := make([]*CA, 8)
	var wg sync.WaitGroup
	for i := range cas {
		wg.Go(func() { cas[i] = open(t, dir) })
	}
	wg.Wait()
	for _, ca := range cas {
		if !ca.pair.cert.Equal(cas[0].pair.cert) {
			t.Error("there are two authorities")
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(dir, "prod"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("another fleet: %v", err)
	}
	if _, err := Open("", "Not A Fleet"); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("no fleet: %v", err)
	}
	path := filepath.Join(dir, authorityFile)
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "dev"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a torn file: %v", err)
	}
	if _, err := Open(path, "dev"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file for a folder: %v", err)
	}
}

func TestIdentities(t *testing.T) {
	for name, dir := range map[string]string{"memory": "", "folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			ca := open(t, dir)
			for _, n := range []string{"web01", "a..b", "a:b@c", strings.Repeat("ü", 127)} {
				id := transport.Identity{Role: transport.RoleCaller, Name: n} // the fleet is the authority's
				got, err := transport.IdentityOf(leafOf(t, ca, id).Leaf)
				if err != nil || got.Name != n || got.Fleet != "dev" {
					t.Errorf("%q has a certificate for %v, %v", n, got, err)
				}
			}
			for _, id := range []transport.Identity{
				{Fleet: "prod", Role: transport.RoleAgent, Name: "x"},
				{Fleet: "dev", Role: "Agent", Name: "x"},
				{Fleet: "dev", Role: transport.RoleAgent},
				{Fleet: "dev", Role: transport.RoleAgent, Name: "../../x"},
				{Fleet: "dev", Role: transport.RoleAgent, Name: "\n"},
			} {
				if _, err := ca.TLS(id); !errors.Is(err, transport.ErrIdentity) {
					t.Errorf("%v: %v", id, err)
				}
				if err := ca.WriteFiles(t.TempDir(), "x", id); !errors.Is(err, transport.ErrIdentity) {
					t.Errorf("%v: %v", id, err)
				}
			}
		})
	}
}

// A certificate about to expire, or of an authority that is no more, is made
// again. The key stays.
func TestReissue(t *testing.T) {
	dir := t.TempDir()
	ca := open(t, dir)
	good := leafOf(t, ca, web01)
	path := filepath.Join(dir, leafFile(web01))
	old, err := readPair(path)
	if err != nil {
		t.Fatal(err)
	}
	template := *old.cert
	template.NotAfter = time.Now().Add(renewBefore / 2)
	expiring, err := newPair(old.key, &template, &ca.pair)
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, "")
	foreign, err := other.issue(web01, old.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]pair{"expiring": expiring, "foreign": foreign} {
		both, err := bad.bothPEM()
		if err != nil {
			t.Fatal(err)
		}
		if err := replaceFile(path, both, 0o600); err != nil {
			t.Fatal(err)
		}
		leaf := leafOf(t, ca, web01)
		if leaf.Leaf.Equal(bad.cert) || leaf.Leaf.CheckSignatureFrom(ca.pair.cert) != nil {
			t.Errorf("%s: not made again", name)
		}
		if !old.key.Equal(leaf.PrivateKey) || string(leaf.Leaf.RawSubjectPublicKeyInfo) != string(good.Leaf.RawSubjectPublicKeyInfo) {
			t.Errorf("%s: the key is another", name)
		}
	}
}

func TestWriteFilesNamesTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if err := open(t, "").WriteFiles(dir, "x", web01); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an absent folder: %v", err)
	}
}
