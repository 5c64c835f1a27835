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

	"github.com/harpcaller/harp/internal/yamlfile"
)

// maxFile is how many bytes a file may have.
const maxFile = 1 << 20

// Load reads the procedures in a directory: the files *.yaml and *.yml in it, by name.
// There may be none. Only its owner, who is root or this process's user, may be able to
// write the directory and each file: who can write there runs commands here.
//
// Errors: *yamlfile.Error, which is harp.ErrInvalid, for what is wrong in the files,
// joined if there are several; os's for what cannot be read. With an error there are no
// commands.
func Load(dir string) ([]*Command, error) {
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
		f, list, err := read(path)
		wrong = append(wrong, err)
		for _, c := range list {
			if other, ok := from[c.Doc.Name]; ok {
				wrong = append(wrong, f.Errorf(c.Doc.Name, "is in %s already", other))
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

// files returns the paths of the files to read.
func files(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, &yamlfile.Error{File: dir, Message: err.Error()}
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
func read(path string) (*yamlfile.File, []*Command, error) {
	text, err := readTrusted(path)
	if err != nil {
		return nil, nil, err
	}
	return parse(path, text)
}

// readTrusted reads a file that nobody else could have written.
func readTrusted(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened, for a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &yamlfile.Error{File: path, Message: "is no regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, &yamlfile.Error{File: path, Message: err.Error()}
	}
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
