// Package manifest reads and writes the documents in which people keep schedules, groups, windows, notifications and retention rules: YAML, several in a
// file, each with its kind. It is strict: what is not known is refused, and an error names file, line and field.
package manifest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// MaxFile is how many bytes a file may have.
const MaxFile = 1 << 20

// Set is documents that belong together, and where each was read.
type Set struct {
	Documents []harp.Document
	readers   []reader
}

// Read reads the documents of a file, or of all files *.yaml and *.yml in a folder, by their names; not those in folders
// below it. Errors: *yamlfile.Error, joined if there are several, of which the first are told, for what is wrong in a file, a name
// that two documents of one kind have, and more than harp.MaxDocuments; a folder without such a file, or without a document in any of them; os's.
func Read(path string) (*Set, error) {
	files, err := filesAt(path)
	if err != nil {
		return nil, err
	}
	s := &Set{}
	var wrong []error
	for _, file := range files {
		if wrong = append(wrong, s.readFile(file)...); len(wrong) >= maxWrong {
			break
		}
	}
	if len(wrong) == 0 && len(s.Documents) == 0 && files[0] != path { // all that was applied would be deleted
		return nil, &yamlfile.Error{File: path, Message: "has no document in any file"}
	}
	return s, joined(wrong)
}

func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if ext := filepath.Ext(file); ext != ".yaml" && ext != ".yml" || e.Name()[0] == '.' || e.IsDir() {
			continue
		}
		if isOther(file) {
			return nil, &yamlfile.Error{File: file, Message: "is no file"}
		}
		files = append(files, file)
	}
	if len(files) == 0 { // it may be another folder than was meant, or one that is not mounted
		return nil, &yamlfile.Error{File: path, Message: "has no file *.yaml or *.yml"}
	}
	return files, nil
}

// isOther reports whether something is there that is no file: to read a pipe waits for who writes into it.
func isOther(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// readFile reads a file until too much is wrong.
func (s *Set) readFile(path string) (wrong []error) {
	text, err := readBounded(path, MaxFile)
	if err != nil {
		return []error{err}
	}
	if len(text) == 0 { // as a crash leaves what was written just before
		return []error{&yamlfile.Error{File: path, Message: "is empty: where it is to have no document, it needs a comment"}}
	}
	found, err := yamlfile.ParseAll(path, text)
	if err != nil {
		return []error{err}
	}
	for _, doc := range found {
		if err := s.add(doc); err != nil {
			if wrong = append(wrong, err); len(wrong) == maxWrong {
				break
			}
		}
	}
	return wrong
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = &yamlfile.Error{File: path, Message: fmt.Sprintf("is longer than %d bytes", most)}
	}
	return text, err
}

// add adds a document that was read.
func (s *Set) add(doc yamlfile.Document) error {
	r := reader{Document: doc, left: maxValues}
	d, err := r.read()
	if err != nil {
		return err
	}
	for i, other := range s.Documents {
		if other.Kind() == d.Kind() && other.Name() == d.Name() {
			return r.Errorf("name", "%s %s is also in %s", d.Kind(), d.Name(), s.readers[i].at())
		}
	}
	if len(s.Documents) == harp.MaxDocuments {
		return r.Errorf("", "is one more than the %d documents that there may be", harp.MaxDocuments)
	}
	s.Documents, s.readers = append(s.Documents, d), append(s.readers, r)
	return nil
}

// At returns in which file and on which line a document begins.
func (s *Set) At(kind harp.DocumentKind, name string) string {
	i := slices.IndexFunc(s.Documents, func(d harp.Document) bool { return d.Kind() == kind && d.Name() == name })
	if i < 0 {
		return ""
	}
	return s.readers[i].at()
}

var inDocument = regexp.MustCompile(`^documents\[(\d+)\]\.(.*)$`)

// Wrap makes an error about one of the documents, as harp.Schedules.Apply returns it, one that names file, line and
// field.
func (s *Set) Wrap(err error) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	m := inDocument.FindStringSubmatch(wrong.Field)
	if m == nil {
		return err
	}
	i, _ := strconv.Atoi(m[1]) // it is digits
	if i >= len(s.readers) {
		return err
	}
	return s.readers[i].wrap(&harp.FieldError{Field: m[2], Message: wrong.Message})
}

// joined is nil for no error, and the error itself for one.
func joined(all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}
