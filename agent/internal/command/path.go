package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// patternSegment is a part of a path between slashes, but not "..".
const patternSegment = `(?:\.|[^/.\x00][^/\x00]*|\.[^/.\x00][^/\x00]*|\.\.[^/\x00]+)`

// maxPath is how long Linux lets a path be.
const maxPath = 4095

// path makes the schema of a path: absolute, without ".." and, where there is one,
// under its directory.
func (b *builder) path(field string, p *param, s *jsonschema.Schema) {
	s.Type = "string"
	s.MaxLength = new(maxPath)
	begin := ""
	if p.Under != "" {
		if !filepath.IsAbs(p.Under) || filepath.Clean(p.Under) != p.Under || strings.Contains(p.Under, "\x00") {
			b.errorf(field+".under", "must be an absolute path without . and .., and not end with /")
		}
		begin = strings.TrimSuffix(p.Under, "/")
	}
	more := `*$`
	if begin == "" {
		more = `+$`
	}
	s.Pattern = `^` + regexp.QuoteMeta(begin) + `(?:/` + patternSegment + `?)` + more
}

// checkUnder follows the symbolic links in as much of a path as there is, and checks
// that it stays under a directory. Who can write there can make a link later: a
// command that must not follow it has to see to that itself.
func checkUnder(field, dir, path string) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return &harp.FieldError{Field: field, Message: "must be under " + dir + ", which cannot be read: " + err.Error()}
	}
	is, err := follow(filepath.Clean(path))
	if err != nil {
		return &harp.FieldError{Field: field, Message: "cannot be followed: " + err.Error()}
	}
	if is != root && !strings.HasPrefix(is, strings.TrimSuffix(root, "/")+"/") {
		return &harp.FieldError{Field: field, Message: "must be under " + dir + ", is " + is}
	}
	return nil
}

// follow is filepath.EvalSymlinks for a path of which the end need not exist. The
// error tells of a link that leads nowhere, too.
func follow(path string) (string, error) {
	is, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return is, err
	}
	if _, there := os.Lstat(path); there == nil {
		return "", err
	}
	parent, err := follow(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}
