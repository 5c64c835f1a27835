package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// Where a result is from, and why there is none.
const (
	fromStdout   = "stdout"
	fromLastJSON = "stdout-last-json"
	fromFile     = "file"

	resultNone     = "none"
	resultTooLarge = "too_large"
	resultNotJSON  = "not_json"
	resultNoFile   = "no_file"
	resultOldFile  = "old_file"
)

// collector gathers a result from what is read of stdout.
type collector interface {
	write(b []byte)
	// result returns it, or why there is none.
	result() (value []byte, why string)
}

func collectorOf(r Result) collector {
	switch r.From {
	case fromStdout:
		return &wholeOutput{max: r.Max}
	case fromLastJSON:
		return &lastJSON{max: r.Max}
	}
	return noResult{}
}

// room is how many bytes a result may have. The exit code needs none.
func (r Result) room() int64 {
	switch r.From {
	case fromStdout, fromLastJSON, fromFile:
		return int64(r.Max)
	}
	return 0
}

// noResult gathers nothing.
type noResult struct{}

func (noResult) write([]byte)             {}
func (noResult) result() ([]byte, string) { return nil, "" }

// wholeOutput is all of it.
type wholeOutput struct {
	max     int
	b       []byte
	tooLong bool
}

func (w *wholeOutput) write(b []byte) {
	if w.tooLong = w.tooLong || len(w.b)+len(b) > w.max; w.tooLong {
		w.b = nil
		return
	}
	w.b = append(w.b, b...)
}

func (w *wholeOutput) result() ([]byte, string) {
	if w.tooLong {
		return nil, resultTooLarge
	}
	return w.b, ""
}

// lastJSON is the last line that is JSON.
type lastJSON struct {
	max  int
	line []byte
	long bool // the line is longer than that

	value []byte
	why   string // there is none
	some  bool   // there was a line that is not empty
}

func (l *lastJSON) write(b []byte) {
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		if room := l.max - len(l.line); len(part) > room {
			l.long, part = true, part[:max(room, 0)]
		}
		l.line = append(l.line, part...)
		if ended {
			l.endLine()
		}
		b = rest
	}
}

// endLine looks at a line that is complete. One that is too long to be looked at is
// taken for the result if it begins like one.
func (l *lastJSON) endLine() {
	text := bytes.TrimSpace(l.line)
	l.some = l.some || len(text) > 0
	switch {
	case l.long && len(text) > 0 && bytes.IndexByte([]byte(`{["`), text[0]) >= 0:
		l.value, l.why = nil, resultTooLarge
	case !l.long && json.Valid(text):
		l.value, l.why = bytes.Clone(text), ""
	}
	l.line, l.long = l.line[:0], false
}

func (l *lastJSON) result() ([]byte, string) {
	l.endLine()
	if l.value == nil && l.why == "" {
		if l.some {
			return nil, resultNotJSON
		}
		return nil, resultNone
	}
	return l.value, l.why
}

// result is what the command returned, or why it returned nothing. It is called when
// the output has ended.
func (e *engine) result() (value []byte, why string) {
	if e.spec.Result.From == fromFile {
		return e.fileResult()
	}
	return e.streams[0].result.result()
}

// resultPath is where the command leaves its result.
func (e *engine) resultPath() string {
	dir := e.spec.Command.Dir
	switch {
	case e.spec.Result.Path == "":
		return e.secrets.result()
	case dir == PrivateDir:
		dir = e.secrets.work()
	case dir == "":
		dir = "/"
	}
	if path := e.spec.Result.Path; !filepath.IsAbs(path) {
		return filepath.Join(dir, path)
	}
	return e.spec.Result.Path
}

// noteOldResult notes the file that is where the command will leave its result: unless it
// changes it is not of this run. The error says that it could not be looked at, for want of files, say.
func (e *engine) noteOldResult() error {
	if e.spec.Result.From != fromFile {
		return nil
	}
	err := asUser(e.spec.Command, func() error {
		info, err := os.Lstat(e.resultPath())
		if err == nil {
			e.oldResult = versionOf(info)
		}
		return err
	})
	if proc.IsShort(err) {
		return err
	}
	return nil // what cannot be seen now is not there, or is not the result then either
}

const (
	// unreadFor is how long reading a result is tried again that files or memory are too few for.
	unreadFor = time.Minute

	// unreadPause is the pause before it is.
	unreadPause = 100 * time.Millisecond
)

// fileResult reads the file that the command left, with the rights of its user.
func (e *engine) fileResult() ([]byte, string) {
	b, err := e.readResult()
	for began := time.Now(); proc.IsShort(err) && time.Since(began) < unreadFor; b, err = e.readResult() {
		time.Sleep(unreadPause)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return nil, resultTooLarge
	case errors.Is(err, errOld):
		return nil, resultOldFile
	case err != nil:
		return nil, resultNoFile
	}
	return b, ""
}

func (e *engine) readResult() (b []byte, err error) {
	err = asUser(e.spec.Command, func() (err error) {
		b, err = readRegular(e.resultPath(), e.spec.Result.Max, e.oldResult)
		return err
	})
	return b, err
}

var (
	errTooLarge   = errors.New("too large")
	errNotRegular = errors.New("not a regular file")
	errOld        = errors.New("not written since")
)

// readRegular reads a regular file of at most so many bytes, which is not a link, and not
// the old version.
func readRegular(path string, limit int, old version) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if v := versionOf(info); v == old && v != (version{}) {
		return nil, errOld
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if len(b) > limit {
		return nil, errTooLarge
	}
	return b, err
}

// lastLine is the last line of a stream that says anything, or its beginning.
type lastLine struct {
	line, last []byte
}

func (l *lastLine) write(b []byte) {
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		l.line = append(l.line, part[:min(len(part), lastError-len(l.line))]...)
		if ended {
			l.endLine()
		}
		b = rest
	}
}

func (l *lastLine) endLine() {
	if text := bytes.TrimSpace(l.line); len(text) > 0 {
		l.last = append(l.last[:0], text...)
	}
	l.line = l.line[:0]
}

// String is the line, when the stream has ended.
func (l *lastLine) String() string {
	l.endLine()
	return string(bytes.ToValidUTF8(l.last, []byte("\uFFFD")))
}
