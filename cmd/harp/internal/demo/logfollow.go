package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// LogFollow follows a file.
var LogFollow = harp.NewStreamProc[FollowArgs, string, FollowResult]("log.follow",
	"Follow a file, line by line",
	"One record per line: the last lines so far, then each line as it is written, until",
	"the job is cancelled or reaches a limit. When the file is replaced or truncated, as",
	"by log rotation, the new one is followed from its beginning. A line longer than",
	"32 KiB comes in pieces.")

// FollowArgs are the arguments of LogFollow.
type FollowArgs struct {
	Path  string `json:"path" jsonschema:"a file, absolute"`
	Lines *int   `json:"lines,omitempty" jsonschema:"how many lines to start with; 10 by default"`
}

// FollowResult is never seen: following ends by cancel or limit.
type FollowResult struct {
	Lines int `json:"lines"`
}

const (
	defaultLines = 10
	maxLine      = 32 << 10
	chunk        = 64 << 10

	// lookEvery is how often the file is looked at: what a person does not
	// notice and a machine does not feel. Unlike inotify it works on every file
	// system, network ones included, and across replaced folders.
	lookEvery = 200 * time.Millisecond
)

func logFollow(ctx context.Context, in FollowArgs, emit func(string) error) (FollowResult, error) {
	if err := checkPath(in.Path); err != nil {
		return FollowResult{}, err
	}
	last := defaultLines
	if in.Lines != nil {
		last = *in.Lines
	}
	if last < 0 {
		return FollowResult{}, agent.Errorf("bad_arguments", nil, "lines must not be negative")
	}
	file, err := openFile(in.Path)
	if err != nil {
		return FollowResult{}, err
	}
	f := follower{path: in.Path, emit: emit, file: file}
	defer f.closeFile()
	err = f.skipTo(last)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for err == nil {
		if err = f.emitNew(ctx); err != nil {
			break
		}
		select {
		case <-look.C:
			err = f.checkRotation(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return FollowResult{f.lines}, err
}

// follower reads a file that others write, rename and truncate.
type follower struct {
	path   string
	emit   func(string) error
	file   *os.File
	offset int64  // where it has been read to
	part   []byte // of a line whose end has not been written
	lines  int
}

func (f *follower) closeFile() { f.file.Close() } //nolint:errcheck // it was only read

// openFile opens the file that has the name now. A pipe, which would block, is
// refused.
func openFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathError(path, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = agent.Errorf("not_a_file", pathData(path), "%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// skipTo goes to where the last lines of the file begin.
func (f *follower) skipTo(lines int) error {
	end, err := f.file.Seek(0, io.SeekEnd)
	if err != nil {
		return pathError(f.path, err)
	}
	buf := make([]byte, chunk)
	found := 0
	for at := end; at > 0; {
		n := min(at, chunk)
		at -= n
		if _, err := f.file.ReadAt(buf[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return pathError(f.path, err)
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != '\n' || at+i == end-1 && lines > 0 {
				continue
			}
			if found++; found > lines-1 || lines == 0 {
				f.offset = at + i + 1
				return nil
			}
		}
	}
	return nil
}

// emitNew emits what has been written since.
func (f *follower) emitNew(ctx context.Context) error {
	buf := make([]byte, chunk)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := f.file.ReadAt(buf, f.offset)
		f.offset += int64(n)
		if err := f.split(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pathError(f.path, err)
		}
	}
}

// split emits the lines that text completes, and keeps the rest.
func (f *follower) split(text []byte) error {
	f.part = append(f.part, text...)
	for {
		n := bytes.IndexByte(f.part, '\n')
		switch {
		case n >= 0 && n <= maxLine:
			if err := f.emitLine(f.part[:n]); err != nil {
				return err
			}
			f.part = f.part[n+1:]
		case len(f.part) > maxLine:
			if err := f.emitLine(f.part[:maxLine]); err != nil {
				return err
			}
			f.part = f.part[maxLine:]
		default:
			f.part = bytes.Clone(f.part) // let go of what was emitted
			return nil
		}
	}
}

func (f *follower) emitLine(text []byte) error {
	f.lines++
	return f.emit(strings.ToValidUTF8(strings.TrimSuffix(string(text), "\r"), "\uFFFD"))
}

// checkRotation notices that the file was replaced or truncated. What was written to the
// old one before is read first; a line without end is one then.
func (f *follower) checkRotation(ctx context.Context) error {
	now, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // between two files of this name; the old one is still read
	}
	if err != nil {
		return pathError(f.path, err)
	}
	have, err := f.file.Stat()
	if err != nil {
		return pathError(f.path, err)
	}
	if os.SameFile(have, now) {
		if now.Size() >= f.offset {
			return nil
		}
		f.offset = 0
		return f.emitUnended()
	}
	next, err := openFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = errors.Join(f.emitNew(ctx), f.emitUnended())
	f.closeFile()
	f.file, f.offset = next, 0
	return err
}

// emitUnended emits a line whose end will not come.
func (f *follower) emitUnended() error {
	if len(f.part) == 0 {
		return nil
	}
	part := f.part
	f.part = nil
	return f.emitLine(part)
}
