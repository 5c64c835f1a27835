package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// TestRelease makes a release for this machine at two places, compares its bytes, and installs,
// upgrades and removes what it made.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		needs.Missing(t, "a release is installed on Linux")
	}
	here := platform{"linux", runtime.GOARCH}
	twice := [2]*release{}
	for i := range twice {
		clone := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i), "harp")
		execute(t, "git", "clone", "-q", "..", clone)
		r, err := newRelease(t.Context(), clone, filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.make(t.Context(), []platform{here}); err != nil {
			t.Fatal(err)
		}
		twice[i] = r
	}
	r := twice[0]
	prefix := "harp-" + r.version + "-"
	var names []string
	for _, suffix := range []string{here.os + "-" + here.arch + ".tar.gz", here.os + "-" + here.arch + ".cdx.json", here.os + "-" + here.arch + ".deb", here.os + "-" + here.arch + ".rpm", "oci.tar"} {
		names = append(names, prefix+suffix)
	}
	names = append(names, "SHA256SUMS")
	slices.Sort(names)
	if got := list(t, r.out); !slices.Equal(got, names) {
		t.Fatalf("there are %q, want %q", got, names)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, r.out, name), read(t, twice[1].out, name)) {
			t.Errorf("%s has other bytes when it is made at another place", name)
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = r.out
	if said, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}

	t.Run("archive", func(t *testing.T) {
		root := t.TempDir()
		execute(t, "tar", "-xzf", filepath.Join(r.out, prefix+here.os+"-"+here.arch+".tar.gz"), "-C", root)
		dir := filepath.Join(root, prefix+here.os+"-"+here.arch)
		program := filepath.Join(dir, "harp")
		if said := execute(t, program, "version"); !strings.HasPrefix(said, "harp "+r.version+" ") {
			t.Errorf("harp version says %q, want %s", said, r.version)
		}
		if info, err := buildinfo.ReadFile(program); err != nil || info.Main.Version != "v"+r.version {
			t.Errorf("Go calls the version %q, %v, want v%s", info.Main.Version, err, r.version)
		}
		if page := read(t, dir, "man/harp-call.1"); !bytes.Contains(page, []byte(r.version)) {
			t.Errorf("the man pages are of another version than %s", r.version)
		}
		for _, name := range []string{"LICENSE", "man/harp-call.1", "completion/harp.bash"} {
			if len(read(t, dir, name)) == 0 {
				t.Errorf("%s is empty", name)
			}
		}
	})
	t.Run("bill", func(t *testing.T) {
		var bom struct {
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal(read(t, r.out, prefix+here.os+"-"+here.arch+".cdx.json"), &bom); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"std", "github.com/dgraph-io/badger/v4", "github.com/spf13/cobra"} {
			if !slices.ContainsFunc(bom.Components, func(c struct{ Name, Version string }) bool { return c.Name == name && c.Version != "" }) {
				t.Errorf("%s is not in %v", name, bom.Components)
			}
		}
	})
	t.Run("deb", func(t *testing.T) { installDeb(t, r, here) })
	t.Run("image", func(t *testing.T) { runImage(t, r) })
}

// installDeb installs a deb, a newer one over it, removes it and purges it, in a root made of this
// machine's, which nothing of it reaches.
func installDeb(t *testing.T, r *release, p platform) {
	needs.Root(t)
	needs.Programs(t, "dpkg", "unshare", "chroot")
	dir := t.TempDir()
	first := filepath.Join(r.out, "harp-"+r.version+"-"+p.os+"-"+p.arch+".deb")
	newer := *r
	newer.version, newer.out = "99.0.0", filepath.Join(dir, "newer")
	prog, err := r.build(t.Context(), p)
	if err := errors.Join(err, os.Mkdir(newer.out, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := newer.pack(prog, nil); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(newer.out, "harp-99.0.0-"+p.os+"-"+p.arch+".deb")
	script := `
set -eu
mount -t tmpfs harp "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay harp -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind /dev "$1/root/dev"
cp "$2" "$1/root/first.deb"
cp "$3" "$1/root/second.deb"
chroot "$1/root" sh -eu <<'END'
if getent passwd harp; then exit 3; fi
dpkg -i first.deb
harp version
getent passwd harp
grep -q 'ExecStart=/usr/bin/harp agent' /usr/lib/systemd/system/harp-agent.service
test -s /usr/share/man/man1/harp-call.1.gz
test -s /usr/share/bash-completion/completions/harp
test -d /etc/harp/procedures
echo mine > /etc/harp/agent.yaml
mkdir -p /var/lib/harp && echo kept > /var/lib/harp/results
dpkg -i second.deb
test "$(dpkg-query -W -f '${Version}' harp)" = 99.0.0
test "$(cat /etc/harp/agent.yaml)" = mine
dpkg -r harp
if test -e /usr/bin/harp; then exit 4; fi
test "$(cat /etc/harp/agent.yaml)" = mine
dpkg -P harp
test "$(cat /var/lib/harp/results)" = kept
echo all of it
END
`
	base := filepath.Join(dir, "base")
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", base, first, second).CombinedOutput()
	if err != nil || !bytes.HasSuffix(said, []byte("all of it\n")) || !bytes.Contains(said, []byte("/var/lib/harp stays")) {
		t.Errorf("%v\n%s", err, said)
	}
}

// runImage runs the program of the image as its user, with nothing else in its root.
func runImage(t *testing.T, r *release) {
	needs.Root(t)
	needs.Programs(t, "chroot")
	dir, root := t.TempDir(), t.TempDir()
	execute(t, "tar", "-xf", filepath.Join(r.out, "harp-"+r.version+"-oci.tar"), "-C", dir)
	type blob struct{ MediaType, Digest string }
	var index struct{ Manifests []blob }
	var manifest struct {
		Config blob
		Layers []blob
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	at := func(b blob) string { return strings.Replace(b.Digest, "sha256:", "blobs/sha256/", 1) }
	for _, step := range []struct {
		name func() string
		into any
	}{
		{func() string { return "index.json" }, &index},
		{func() string { return at(index.Manifests[0]) }, &manifest},
		{func() string { return at(manifest.Config) }, &config},
	} {
		if err := json.Unmarshal(read(t, dir, step.name()), step.into); err != nil {
			t.Fatal(err)
		}
	}
	for _, layer := range manifest.Layers {
		unpack(t, read(t, dir, at(layer)), root)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/harp"}) {
		t.Errorf("the image is run as %+v", c)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if said := execute(t, "chroot", "--userspec="+config.Config.User, root, config.Config.Entrypoint[0], "version"); !strings.HasPrefix(said, "harp ") {
		t.Errorf("harp version says %q", said)
	}
}

// unpack unpacks a layer with the owners that it names.
func unpack(t *testing.T, layer []byte, root string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(name, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, data, 0o600)
			}
		}
		if err := errors.Join(err, os.Chown(name, h.Uid, h.Gid), os.Chmod(name, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersion checks what commits are called: by their tag or, behind it, as Go calls them.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		return strings.TrimSpace(execute(t, "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...))
	}
	git("init", "-q")
	for _, step := range []struct{ tag, want string }{
		{"", "0.0.0-20"},
		{"v0.9.0", "0.9.0"},
		{"", "0.9.1-0.20"},
		{"v0.10.0-rc.1", "0.10.0-rc.1"},
		{"", "0.10.0-rc.1.0.20"},
		{"v0.10.0", "0.10.0"},
		{"", "0.10.1-0.20"},
		{"other", "0.10.1-0.20"},
	} {
		git("commit", "-q", "--allow-empty", "-m", "next")
		if step.tag != "" {
			git("tag", step.tag)
		}
		r, err := newRelease(t.Context(), dir, "")
		if err != nil {
			t.Fatal(err)
		}
		hash := git("rev-parse", "HEAD")[:12]
		if !strings.HasPrefix(r.version, step.want) || strings.HasPrefix(step.tag, "v") != (r.version == step.want) || strings.HasPrefix(step.tag, "v") == strings.HasSuffix(r.version, hash) {
			t.Errorf("%s at tag %q has version %s", hash, step.tag, r.version)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := newRelease(t.Context(), dir, ""); err != nil || !strings.HasSuffix(r.version, "+dirty") {
		t.Errorf("with a file that no commit has the version is %s, %v", r.version, err)
	}
}

// TestPlatforms checks what may be asked for.
func TestPlatforms(t *testing.T) {
	if got, err := choosePlatforms(""); err != nil || len(got) != len(platforms) {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := choosePlatforms("linux/arm64,darwin/amd64"); err != nil || len(got) != 2 || got[1] != (platform{"darwin", "amd64"}) {
		t.Errorf("two: %v, %v", got, err)
	}
	if got, err := choosePlatforms("linux/amd64,plan9/386"); err == nil {
		t.Errorf("one that there is not: %v", got)
	}
}

func execute(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said)
	}
	return string(said)
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
