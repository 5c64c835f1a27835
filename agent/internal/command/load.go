package command

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/harpcaller/harp/agent/internal/access"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// maxFile is how many bytes a file may have.
const maxFile = 1 << 20

// Load reads the procedures in a directory: the files *.yaml and *.yml in it, by name.
// There may be none. Only its owner, who is root or this process's user, may be able to
// write the directory, each file, what is on the way to them and what the commands execute:
// who can write there runs commands here.
//
// Errors: *yamlfile.Error, which is harp.ErrInvalid, for what is wrong in the files,
// joined if there are several; os's for what cannot be read. With an error there are no
// commands.
//
// able says whether this machine can keep limits by a controller of cgroup v2, and most is how
// many bytes a result may have.
func Load(dir string, able func(controller string) error, most int) ([]*Command, error) {
	return loadAll(dir, able, most, false)
}

// Check is Load that also refuses scripts that are missing or not executable. An agent takes
// these, as they may be installed later.
func Check(dir string, able func(controller string) error, most int) ([]*Command, error) {
	return loadAll(dir, able, most, true)
}

func loadAll(dir string, able func(controller string) error, most int, there bool) ([]*Command, error) {
	paths, err := files(dir)
	if err != nil {
		return nil, err
	}
	var (
		all   []*Command
		wrong []error
		from  = map[string]string{} // the file, by procedure
	)
	for _, path := range paths {
		f, list, err := read(path, able, most, there)
		wrong = append(wrong, err)
		for _, c := range list {
			if other, ok := from[c.Doc.Name]; ok {
				wrong = append(wrong, f.Errorf(c.Doc.Name, "is already in %s", other))
			}
			from[c.Doc.Name] = path
		}
		all = append(all, list...)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *Command) int { return strings.Compare(a.Doc.Name, b.Doc.Name) })
	return all, nil
}

// trusted reports whether others could change a file or folder. Errors: *yamlfile.Error,
// and the file system's.
func trusted(path string) error {
	err := access.CheckPath(path)
	var wrong *access.UntrustedError
	if errors.As(err, &wrong) {
		return &yamlfile.Error{File: wrong.Path, Message: wrong.Message}
	}
	return err
}

// files returns the paths of the files to read.
func files(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := trusted(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// read reads a file of procedures. There are none with an error.
func read(path string, able func(controller string) error, most int, there bool) (*yamlfile.File, []*Command, error) {
	text, err := readTrusted(path)
	if err != nil {
		return nil, nil, err
	}
	if len(text) == 0 { // as a crash leaves what was written just before: calls that wait for its procedures would be refused
		return nil, nil, &yamlfile.Error{File: path, Message: "is empty: where it is to have no procedure, it needs a comment"}
	}
	f, list, err := parse(path, text)
	if err != nil {
		return f, nil, err
	}
	var wrong []error
	for _, c := range list {
		wrong = append(wrong, c.tooLarge(f, most), c.untrusted(f, "command", c.scripts), c.untrusted(f, "dry_run", c.dryScripts))
		for _, n := range c.needs {
			wrong = append(wrong, c.unable(f, n, able))
		}
		if there {
			wrong = append(wrong, c.missing(f, "command", c.scripts), c.missing(f, "dry_run", c.dryScripts))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return f, nil, err
	}
	return f, list, nil
}

// tooLarge reports whether a file allows results that the agent does not.
func (c *Command) tooLarge(f *yamlfile.File, most int) error {
	if allowed := most - resultRoom; c.result.Max != defaultResult && c.result.Max > allowed {
		return f.Errorf(c.Doc.Name+".result.max", "must be at most %d", allowed)
	}
	return nil
}

// untrusted reports whether others could change what a field of a procedure runs.
func (c *Command) untrusted(f *yamlfile.File, field string, scripts []script) error {
	err := c.checkScripts(scripts)
	if err != nil {
		return f.Errorf(c.Doc.Name+"."+field, "%v", err)
	}
	return nil
}

// missing reports whether what a field of a procedure executes does not exist.
func (c *Command) missing(f *yamlfile.File, field string, scripts []script) error {
	for _, s := range scripts {
		if err := c.checkThere(s); err != nil {
			return f.Errorf(c.Doc.Name+"."+field, "%v", err)
		}
	}
	return nil
}

// unable reports whether this machine has not what a field of a procedure needs.
func (c *Command) unable(f *yamlfile.File, n need, able func(controller string) error) error {
	err := error(nil)
	if n.controller != "" {
		err = able(n.controller)
	} else {
		err = proc.ProbePrivateTmp()
	}
	if err != nil {
		return f.Errorf(c.Doc.Name+"."+n.field, "is not available here: %v", err)
	}
	return nil
}

// readTrusted reads a file that nobody else could have written.
func readTrusted(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened, for a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &yamlfile.Error{File: path, Message: "is not a regular file"}
	}
	if err := trusted(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = &yamlfile.Error{File: path, Message: fmt.Sprintf("is larger than %d bytes", maxFile)}
	}
	return text, err
}

// parse makes the commands of a file's text. Errors: *yamlfile.Error, joined.
func parse(path string, text []byte) (*yamlfile.File, []*Command, error) {
	declarations := map[string]*declaration{}
	f, err := yamlfile.Parse(path, text, &declarations)
	if err != nil {
		return f, nil, err
	}
	var (
		list  []*Command
		wrong []error
	)
	for _, name := range slices.Sorted(maps.Keys(declarations)) {
		c, errs := build(f, name, declarations[name])
		list = append(list, c)
		wrong = append(wrong, errs...)
	}
	if len(wrong) > 0 {
		return f, nil, errors.Join(wrong...)
	}
	return f, list, nil
}
