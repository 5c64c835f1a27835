package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who harp is in an image: nobody whom a host knows.
const user = 65532

// image writes an image of harp and nothing else, of all architectures, as a tar of an OCI layout.
// It runs as a user of its own; a dispatcher keeps its data in /var/lib/harp.
func (r *release) image(programs []program) (err error) {
	dir, remove, err := makeTemp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, p := range programs {
		img, err := r.imageOf(p)
		if err != nil {
			return err
		}
		if err := index.AppendImage(img, layout.WithPlatform(v1.Platform{OS: p.os, Architecture: p.arch})); err != nil {
			return err
		}
	}
	var files []file
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name) // name is below dir
		files = append(files, file{filepath.ToSlash(rel), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	data, err := tarFiles(files, r.time)
	if err != nil {
		return err
	}
	return r.write("harp-"+r.version+"-oci.tar", data)
}

func (r *release) imageOf(p program) (v1.Image, error) {
	layer, err := r.layer(p)
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, Comment: "harp " + r.version}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, r.imageConfig(img, p))
}

func (r *release) imageConfig(img v1.Image, p program) *v1.ConfigFile {
	cf, err := img.ConfigFile()
	if err != nil {
		panic(err) // of an image in memory
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Created = p.os, p.arch, v1.Time{Time: r.time}
	cf.Config = v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/harp"},
		Cmd:        []string{"dispatcher"},
		WorkingDir: "/var/lib/harp",
		Volumes:    map[string]struct{}{"/var/lib/harp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "harp",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.source":   "https://" + module,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return cf
}

// layer has the program, who it runs as, and the folders it needs.
func (r *release) layer(p program) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []struct {
		tar.Header
		data []byte
	}{
		{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nharp:x:65532:\n")},
		{tar.Header{Name: "etc/harp/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:\nharp:x:65532:65532::/var/lib/harp:\n")},
		{tar.Header{Name: "harp", Mode: 0o755}, p.code},
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: "var/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "var/lib/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "var/lib/harp/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: user, Gid: user}, nil},
	} {
		h.ModTime, h.Size, h.Format = r.time, int64(len(h.data)), tar.FormatPAX
		if err := w.WriteHeader(&h.Header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(h.data)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}
