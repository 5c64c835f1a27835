package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what is made of one commit.
type release struct {
	root, out string
	version   string // 1.2.3 where the commit has that tag, else as Go names it: 1.2.4-0.20261127175406-6cedaf473a1f
	time      time.Time
}

// newRelease reads what the commit says of itself.
func newRelease(ctx context.Context, root, out string) (*release, error) {
	head, err := output(ctx, root, "git", "log", "-1", "--format=%ct %H")
	if err != nil {
		return nil, err
	}
	stamp, hash, _ := strings.Cut(head, " ")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, err
	}
	made := time.Unix(seconds, 0).UTC()
	version, err := versionAt(ctx, root, made, hash)
	if err != nil {
		return nil, err
	}
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if changed != "" {
		version += "+dirty"
	}
	return &release{root: root, out: out, version: version, time: made}, err
}

// versionAt returns the version of the commit that is checked out, which is the one that Go gives it.
func versionAt(ctx context.Context, root string, made time.Time, hash string) (string, error) {
	newest := func(which string) (string, error) {
		tags, err := output(ctx, root, "git", "-c", "versionsort.suffix=-", "tag", which, "HEAD", "--sort=-version:refname", "v[0-9]*")
		first, _, _ := strings.Cut(tags, "\n")
		return strings.TrimPrefix(first, "v"), err
	}
	if tag, err := newest("--points-at"); tag != "" || err != nil {
		return tag, err
	}
	behind := made.Format("20060102150405") + "-" + hash[:12]
	last, err := newest("--merged")
	switch {
	case err != nil:
		return "", err
	case last == "":
		return "0.0.0-" + behind, nil
	case strings.Contains(last, "-"): // of a pre-release: 1.2.3-rc.1
		return last + ".0." + behind, nil
	}
	dot := strings.LastIndex(last, ".")
	patch, err := strconv.Atoi(last[dot+1:])
	return fmt.Sprintf("%s.%d-0.%s", last[:dot], patch+1, behind), err
}

// linked is the flag of go build that tells the program its version.
func (r *release) linked() string { return "-X " + module + ".linkedVersion=" + r.version }

func (r *release) make(ctx context.Context, chosen []platform) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	common, err := r.commonFiles(ctx)
	if err != nil {
		return err
	}
	var images []program
	for _, p := range chosen {
		prog, err := r.build(ctx, p)
		if err != nil {
			return err
		}
		if err := errors.Join(r.archive(prog, common), r.bill(prog)); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		if err := r.pack(prog, common); err != nil {
			return err
		}
		images = append(images, prog)
	}
	if len(images) > 0 {
		if err := r.image(images); err != nil {
			return err
		}
	}
	return r.checksums()
}

// program is harp built for a platform.
type program struct {
	platform
	code []byte
}

// build makes a program that needs no library of its system.
func (r *release) build(ctx context.Context, p platform) (_ program, err error) {
	dir, remove, err := makeTemp()
	if err != nil {
		return program{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	file := filepath.Join(dir, "harp")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid= "+r.linked(), "-o", file, "./cmd/harp")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return program{}, fmt.Errorf("building for %v: %w", p, err)
	}
	code, err := os.ReadFile(file)
	return program{p, code}, err
}

// file is one that archives and packages have, under a name of their own.
type file struct {
	name string // as in an archive
	mode os.FileMode
	data []byte
}

// commonFiles are those that are the same on all platforms, sorted by name.
func (r *release) commonFiles(ctx context.Context) ([]file, error) {
	var files []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, data})
	}
	pages, err := r.manPages(ctx)
	if err != nil {
		return nil, err
	}
	files = append(files, pages...)
	for shell, name := range map[string]string{"bash": "harp.bash", "zsh": "_harp", "fish": "harp.fish"} {
		script, err := output(ctx, r.root, "go", "run", "./cmd/harp", "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completion/" + name, 0o644, []byte(script + "\n")})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

func (r *release) manPages(ctx context.Context) (_ []file, err error) {
	dir, remove, err := makeTemp()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cmd := exec.CommandContext(ctx, "go", "test", "./cmd/harp", "-count=1", "-run=^TestManPages$", "-ldflags="+r.linked(), "-man="+dir)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making man pages: %w\n%s", err, said)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no man pages were made: %w", err)
	}
	var pages []file
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		pages = append(pages, file{"man/" + filepath.Base(name), 0o644, data})
	}
	return pages, nil
}

// makeTemp makes a folder, and returns what removes it.
func makeTemp() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "harp-dist-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// write writes one file of the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// checksums writes the SHA-256 of all files, as sha256sum -c reads them.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return r.write("SHA256SUMS", sums.Bytes())
}

// output runs a program and returns what it prints, without the last line's end.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}
