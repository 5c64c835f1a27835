package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// pack writes a deb and an rpm: the program, units, man pages, completion, /etc/harp. Nothing
// is started by installing it, as there is no configuration yet; an upgrade restarts what
// runs, and commands go on under their supervisors.
func (r *release) pack(p program, common []file) (err error) {
	dir, remove, err := makeTemp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	for format, zsh := range map[string]string{"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"} {
		info, err := r.describe(p, filepath.Join(dir, format), common, zsh)
		if err != nil {
			return err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info.Name = "harp"
		if format == "rpm" {
			info.Depends = []string{"shadow-utils"}
		}
		var buf bytes.Buffer
		if err := packager.Package(nfpm.WithDefaults(info), &buf); err != nil {
			return fmt.Errorf("%s for %v: %w", format, p, err)
		}
		if err := r.write("harp-"+r.version+"-"+p.os+"-"+p.arch+"."+format, buf.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// describe lays out below dir what a package has, and returns what it says of itself.
func (r *release) describe(p program, dir string, common []file, zsh string) (*nfpm.Info, error) {
	install := []file{{"/usr/bin/harp", 0o755, p.code}}
	for _, f := range common {
		to, data, err := installed(f, zsh)
		if err != nil {
			return nil, err
		}
		install = append(install, file{to, f.mode, data})
	}
	for _, name := range []string{"harp-agent.service", "harp-dispatcher.service"} {
		unit, err := os.ReadFile(filepath.Join(r.root, "contrib", "systemd", name))
		if err != nil {
			return nil, err
		}
		install = append(install, file{"/usr/lib/systemd/system/" + name, 0o644, packagedUnit(unit)})
	}
	for _, name := range []string{"agent.yaml", "dispatcher.yaml"} {
		example, err := sources.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		install = append(install, file{"/usr/share/doc/harp/examples/" + name, 0o644, example})
	}
	contents := files.Contents{
		{Destination: "/etc/harp", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time}},
		{Destination: "/etc/harp/procedures", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time}},
	}
	for _, f := range install {
		from := filepath.Join(dir, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o755), os.WriteFile(from, f.data, 0o600)); err != nil {
			return nil, err
		}
		contents = append(contents, &files.Content{
			Source: from, Destination: f.name,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.time},
		})
	}
	info := &nfpm.Info{
		Arch: p.arch, Platform: "linux", Version: r.version, MTime: r.time,
		Section: "admin", Priority: "optional", License: "Apache-2.0",
		Maintainer: "The harp authors",
		Homepage:   "https://" + module,
		Description: "Call procedures on remote machines and keep what they return\n" +
			"A call gives back a job id at once; the job's status, its records and its\n" +
			"result can be read at any later time. This is the dispatcher, the agent and\n" +
			"the command line in one program.",
		DisableGlobbing: true,
		Overridables:    nfpm.Overridables{Contents: contents, Depends: []string{"passwd"}},
	}
	for script, to := range map[string]*string{
		"postinstall.sh": &info.Scripts.PostInstall, "preremove.sh": &info.Scripts.PreRemove, "postremove.sh": &info.Scripts.PostRemove,
	} {
		data, err := sources.ReadFile("files/" + script)
		if err != nil {
			return nil, err
		}
		*to = filepath.Join(dir, script)
		if err := os.WriteFile(*to, data, 0o600); err != nil {
			return nil, err
		}
	}
	return info, nil
}

// installed says where a file of an archive lies on a system, and what it is there.
func installed(f file, zsh string) (string, []byte, error) {
	switch base := path.Base(f.name); {
	case path.Dir(f.name) == "man":
		data, err := compress(f.data)
		return "/usr/share/man/man1/" + base + ".gz", data, err
	case base == "harp.bash":
		return "/usr/share/bash-completion/completions/harp", f.data, nil
	case base == "harp.fish":
		return "/usr/share/fish/vendor_completions.d/harp.fish", f.data, nil
	case base == "_harp":
		return zsh + "/_harp", f.data, nil
	case base == "LICENSE":
		return "/usr/share/doc/harp/copyright", f.data, nil
	default:
		return "/usr/share/doc/harp/" + base, f.data, nil
	}
}

// packagedUnit is a unit with the program where packages put it, and without the commands
// that install it by hand.
func packagedUnit(unit []byte) []byte {
	text := string(unit)
	text = text[strings.Index(text, "[Unit]"):]
	return []byte(strings.ReplaceAll(text, "/usr/local/bin/harp", "/usr/bin/harp"))
}
