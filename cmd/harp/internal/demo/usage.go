package demo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// DiskUsage measures what is under a directory.
var DiskUsage = harp.NewStreamProc[UsageArgs, UsageRecord, UsageResult]("disk.usage",
	"Measure the files under a directory",
	"One record per directory: how many files are directly in it, and their total size in",
	"bytes; then the grand total. Symbolic links are not followed, and file systems",
	"mounted below are left out. The record of an unreadable directory says why.")

// UsageArgs are the arguments of DiskUsage.
type UsageArgs struct {
	Path string `json:"path" jsonschema:"a directory, absolute"`
}

// UsageRecord is one directory.
type UsageRecord struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	Error string `json:"error,omitempty"` // why it could not be read whole
}

// UsageResult is the total.
type UsageResult struct {
	Bytes       int64 `json:"bytes"`
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Unreadable  int   `json:"unreadable,omitempty"` // directories that could not be read whole
}

func diskUsage(ctx context.Context, in UsageArgs, emit func(UsageRecord) error) (UsageResult, error) {
	if err := checkPath(in.Path); err != nil {
		return UsageResult{}, err
	}
	info, err := os.Lstat(in.Path)
	if err != nil {
		return UsageResult{}, pathError(in.Path, err)
	}
	if !info.IsDir() {
		return UsageResult{}, agent.Errorf("not_a_directory", pathData(in.Path), "%s is not a directory", in.Path)
	}
	// An os.Root lets nobody lead the way out of it by a link put there meanwhile.
	root, err := os.OpenRoot(in.Path)
	if err != nil {
		return UsageResult{}, pathError(in.Path, err)
	}
	defer root.Close()
	u := usage{base: filepath.Clean(in.Path), files: root.FS(), device: deviceOf(info), emit: emit}
	err = u.measure(ctx, ".")
	return u.total, err
}

// usage is one measuring.
type usage struct {
	base   string
	files  fs.FS
	device uint64
	emit   func(UsageRecord) error
	total  UsageResult
}

// measure measures a directory and then those in it.
func (u *usage) measure(ctx context.Context, dir string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	rec := UsageRecord{Path: strings.ToValidUTF8(filepath.Join(u.base, dir), "\uFFFD")}
	below, err := u.sumFiles(dir, &rec)
	if err != nil {
		rec.Error = reason(err).Error()
		u.total.Unreadable++
	}
	u.total.Directories++
	u.total.Bytes += rec.Bytes
	u.total.Files += rec.Files
	if err := u.emit(rec); err != nil {
		return err
	}
	for _, name := range below {
		if err := u.measure(ctx, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// sumFiles adds up a directory's files and returns the directories in it.
func (u *usage) sumFiles(dir string, rec *UsageRecord) (below []string, err error) {
	entries, err := fs.ReadDir(u.files, filepath.ToSlash(dir))
	for _, e := range entries {
		info, infoErr := e.Info()
		switch {
		case errors.Is(infoErr, fs.ErrNotExist): // gone meanwhile
		case infoErr != nil:
			err = infoErr
		case info.IsDir():
			if deviceOf(info) == u.device {
				below = append(below, e.Name())
			}
		default:
			rec.Files++
			rec.Bytes += info.Size()
		}
	}
	return below, err
}

// checkPath refuses a path that means something else to the agent than to the
// caller.
func checkPath(path string) error {
	if !filepath.IsAbs(path) {
		return agent.Errorf("bad_path", pathData(path), "%s is not an absolute path", path)
	}
	return nil
}

// pathError is the failure of a procedure about a path.
func pathError(path string, err error) error {
	typ := "io"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		typ = "not_found"
	case errors.Is(err, fs.ErrPermission):
		typ = "permission"
	}
	return agent.Errorf(typ, pathData(path), "%s: %w", path, reason(err))
}

func pathData(path string) map[string]string { return map[string]string{"path": path} }

// reason is an error of the file system without the path.
func reason(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
