// Package contexts keeps, in a folder of the user, which dispatchers there are and
// how to reach them: a file for each context and one that names the current one.
package contexts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// Context is a dispatcher and who one is to it.
type Context struct {
	Addr  string `yaml:"addr"`            // host:port
	Fleet string `yaml:"fleet,omitempty"` // for people: the fleet of the certificates
	Cert  string `yaml:"cert"`            // PEM files: the caller's certificate,
	Key   string `yaml:"key"`             // its key,
	CA    string `yaml:"ca"`              // and whom to trust
}

// Dir is the folder in which the contexts are.
type Dir string

const (
	currentFile = "current"
	folder      = "contexts"
	suffix      = ".yaml"
)

// Find returns the folder: $HARP_CONFIG_DIR, or harp in the user's own
// configuration folder.
func Find(env func(string) string) (Dir, error) {
	if dir := env("HARP_CONFIG_DIR"); dir != "" {
		return Dir(dir), nil
	}
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return Dir(filepath.Join(dir, "harp")), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w; set HARP_CONFIG_DIR", err)
	}
	return Dir(filepath.Join(dir, "harp")), nil
}

// Get returns a context. Errors: harp.ErrInvalid, naming the file.
func (d Dir) Get(name string) (Context, error) {
	var c Context
	if err := checkName(name); err != nil {
		return c, err
	}
	path := d.contextPath(name)
	_, err := yamlfile.Read(path, &c)
	if errors.Is(err, os.ErrNotExist) {
		return c, d.unknown(name)
	}
	return c, err
}

// unknown says that there is no such context, and which there are.
func (d Dir) unknown(name string) error {
	known, err := d.Names()
	there := "there are no contexts"
	if err == nil && len(known) > 0 {
		there = "available: " + strings.Join(known, ", ")
	}
	return &harp.FieldError{Field: "context", Message: fmt.Sprintf("%s does not exist in %s; %s", name, d, there)}
}

// Has reports whether there is a context of this name. Errors: harp.ErrInvalid for
// what cannot be a name; os's.
func (d Dir) Has(name string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, err
	}
	_, err := os.Stat(d.contextPath(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Remove deletes a context; if it was the current one, there is none then. Errors:
// harp.ErrInvalid when it is not known; os's.
func (d Dir) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	current, err := d.Current()
	if err != nil {
		return err
	}
	if err := os.Remove(d.contextPath(name)); errors.Is(err, os.ErrNotExist) {
		return d.unknown(name)
	} else if err != nil {
		return err
	}
	if current != name {
		return nil
	}
	return os.Remove(filepath.Join(string(d), currentFile))
}

// Path is the file of a context.
func (d Dir) Path(name string) string { return d.contextPath(name) }

// Put writes a context, over the one that is there.
func (d Dir) Put(name string, c Context) error {
	if err := checkName(name); err != nil {
		return err
	}
	text, err := yaml.Dump(c)
	if err != nil {
		return err
	}
	return replace(d.contextPath(name), text)
}

// Use makes a context the current one and returns which was before; "" if none.
// Whether it is there is not asked.
func (d Dir) Use(name string) (before string, err error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if before, err = d.Current(); err != nil {
		return "", err
	}
	return before, replace(filepath.Join(string(d), currentFile), []byte(name+"\n"))
}

// Current returns the name of the current context; "" if there is none.
func (d Dir) Current() (string, error) {
	text, err := os.ReadFile(filepath.Join(string(d), currentFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

func (d Dir) contextPath(name string) string { return filepath.Join(string(d), folder, name+suffix) }

// Names returns the names of all contexts, sorted.
func (d Dir) Names() ([]string, error) {
	files, err := filepath.Glob(d.contextPath("*"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), suffix)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return checkName(name) != nil })
	slices.Sort(files)
	return files, err
}

// checkName keeps a name within the folder.
func checkName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || strings.HasPrefix(name, ".") || strings.Trim(name, allowed) != "" {
		return &harp.FieldError{Field: "context", Message: fmt.Sprintf("a name consists of letters, digits, -, _ and ., not %q", name)}
	}
	return nil
}

// replace writes a file in one step, and the folder that it is in if need be.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed, or a leftover
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
