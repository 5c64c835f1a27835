//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/needs"
)

// The commands of README.md and docs are run as they are written. A page is one session
// of a shell, in a copy of this repository, with a home of its own:
//
//   - A block that begins with ```console holds commands, behind "$ " and, when they go
//     on, "> ", and what they print. There "..." stands for any text, and alone on a
//     line for any lines. A command of which the page shows no output may print what it
//     likes. It must succeed, unless the next one looks at $?.
//   - <!-- file: NAME --> before a block makes its content a file.
//   - <!-- until: PATTERN --> before a console block: its last command goes on; what
//     follows in the page waits until it has printed the pattern. If the block ends
//     with ^C the command is interrupted then, and must have printed what is shown.
//   - <!-- stop --> ends what goes on, as Ctrl-C would.
//   - <!-- not run: REASON --> before a console block.

// TestDocs runs the pages one after the other: they use the ports that people use.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	needOfPages(t)
	t.Parallel()
	if _, err := plainProgram(); err != nil { // what is compiled for it is compiled for the pages
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{filepath.Join(root, "README.md")}
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	clone := t.TempDir()
	copyTree(t, clone, root)
	commands := 0
	for _, page := range append(pages, more...) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		steps := readPage(t, page)
		if len(steps) == 0 {
			continue
		}
		for _, s := range steps {
			commands += len(s.commands)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) {
			s := newShell(t, clone)
			for _, step := range steps {
				s.do(step)
			}
		})
	}
	if commands < 100 {
		t.Errorf("the pages have %d commands only", commands)
	}
}

// needOfPages leaves the test out where what the pages use is missing. In CI, where
// nothing may be left out, that is a failure.
func needOfPages(t *testing.T) {
	t.Helper()
	needs.Programs(t, "bash", "openssl", "tar", "rsync", "python3")
	l, err := net.Listen("tcp", "127.0.0.1:7440")
	if err != nil {
		needs.Missing(t, "the pages use harp's port: ", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// copyTree copies what is in the repository, without what was built or measured there.
func copyTree(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && name != "." && (d.Name()[0] == '.' || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// step is a block of a page that does something.
type step struct {
	line     int            // of the page
	file     string         // the name of the file that content is written to
	content  string         // of the block
	commands []command      // of a console block
	until    *regexp.Regexp // what the last command prints before the next step
	breaks   bool           // the last command is interrupted then
	stop     bool           // what goes on ends
}

// command is a command of a page.
type command struct {
	text  string
	shown []string // what the page says that it prints; nil: nothing is said
}

var directive = regexp.MustCompile(`^<!-- (file|until|not run): (.+) -->$`)

func readPage(t *testing.T, page string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var said, what string // the directive before a block
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		if m := directive.FindStringSubmatch(lines[i]); m != nil {
			said, what = m[1], m[2]
			continue
		}
		if lines[i] == "<!-- stop -->" {
			steps = append(steps, step{stop: true})
		}
		language, fenced := strings.CutPrefix(lines[i], "```")
		if !fenced {
			continue
		}
		length := slices.Index(lines[i+1:], "```")
		if length < 0 {
			t.Fatalf("%s:%d: the block does not end", page, i+1)
		}
		block := lines[i+1 : i+1+length]
		switch {
		case said == "not run":
		case said == "file":
			steps = append(steps, step{line: i + 1, file: what, content: strings.Join(block, "\n") + "\n"})
		case language == "console":
			s := step{line: i + 1, commands: readCommands(block)}
			if said == "until" {
				s.until = regexp.MustCompile(what)
				s.breaks = block[len(block)-1] == "^C"
			}
			steps = append(steps, s)
		}
		said, what = "", ""
		i += length + 1
	}
	return steps
}

func readCommands(block []string) (all []command) {
	for _, line := range block {
		text, begins := strings.CutPrefix(line, "$ ")
		last := len(all) - 1
		more, goesOn := strings.CutPrefix(line, "> ")
		switch {
		case begins:
			all = append(all, command{text: text})
		case last < 0 || line == "^C":
		case goesOn && all[last].shown == nil:
			all[last].text += "\n" + more
		default:
			all[last].shown = append(all[last].shown, line)
		}
	}
	return all
}

// matches reports whether what a command printed is what the page shows.
func (c command) matches(printed string) bool {
	pattern := "(?s)^"
	for _, line := range c.shown {
		if line == "..." {
			pattern += "(?:.*\n)?"
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, "[^\n]*") + "\n"
	}
	return c.shown == nil || regexp.MustCompile(pattern+"$").MatchString(printed)
}

// shell is the session in which the commands of a page are typed.
type shell struct {
	t     *testing.T
	dir   string // of the repository's copy
	in    io.Writer
	lines chan string    // what it prints
	left  sync.WaitGroup // the readers of what its jobs print
}

// aCommandTakes bounds a command; one of them compiles the program.
const aCommandTakes = 4 * time.Minute

// endJobs ends what was started and goes on.
const endJobs = "for job in $(jobs -p); do kill -INT -- -$job 2>/dev/null; done; wait"

func newShell(t *testing.T, dir string) *shell {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, shellEnvironment(t)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, dir: dir, in: in, lines: make(chan string)}
	go scan(out, s.lines)
	t.Cleanup(func() {
		s.send(endJobs + "; exit")
		for line := range s.lines {
			t.Log(line)
		}
		s.left.Wait()
		_ = cmd.Wait() // its code is that of the last command
	})
	s.send("set -m")
	return s
}

// shellEnvironment is what commands find in their environment: little of the test's own.
func shellEnvironment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	env := []string{"HOME=" + home, "HARP_CONFIG_DIR=" + filepath.Join(home, "config"), "TZ=UTC", "GORACE=atexit_sleep_ms=10"}
	env = append(env, "GOFLAGS="+docsFlags)
	for _, name := range []string{"PATH", "TMPDIR", "CGO_ENABLED"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// scan sends the lines of r and closes the channel at its end.
func scan(r io.Reader, lines chan<- string) {
	defer close(lines)
	for s := bufio.NewScanner(r); s.Scan(); {
		lines <- s.Text()
	}
}

// send types a line.
func (s *shell) send(line string) {
	_, _ = io.WriteString(s.in, line+"\n") // a shell that has ended prints no more, which is noticed
}

// until reads what is printed up to a line that end accepts, without that line.
func (s *shell) until(lines <-chan string, what string, end func(line string) bool) (printed []string) {
	s.t.Helper()
	late := time.After(aCommandTakes)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				s.t.Fatalf("%s: it ended after it had printed\n%s", what, strings.Join(printed, "\n"))
			}
			if end(line) {
				return printed
			}
			printed = append(printed, line)
		case <-late:
			s.t.Fatalf("%s: it takes too long; it printed\n%s", what, strings.Join(printed, "\n"))
		}
	}
}

// do does what a block of the page says.
func (s *shell) do(b step) {
	s.t.Helper()
	switch {
	case b.stop:
		s.run(command{text: endJobs}, "stop")
		return
	case b.file != "":
		s.write(b)
		return
	}
	for i, c := range b.commands {
		last := i == len(b.commands)-1
		if last && b.until != nil {
			s.leave(b, c)
			return
		}
		what := fmt.Sprintf("line %d: %s", b.line, c.text)
		printed, code := s.run(c, what)
		s.t.Logf("$ %s\n%s", c.text, printed)
		if asked := !last && strings.Contains(b.commands[i+1].text, "$?"); code != "0" && !asked {
			s.t.Fatalf("%s\nexited with %s; it printed\n%s", what, code, printed)
		}
		if !c.matches(printed) {
			s.t.Fatalf("%s\nprinted\n%sthe page shows\n%s", what, printed, strings.Join(c.shown, "\n"))
		}
	}
}

// write makes a file of a block, in the folder in which the shell is.
func (s *shell) write(b step) {
	s.t.Helper()
	dir, _ := s.run(command{text: "pwd"}, "pwd")
	path := filepath.Join(strings.TrimSpace(dir), b.file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// endMark is the beginning of a line that the shell prints after a command.
const endMark = "--- the command has ended: "

// run types a command and returns what it printed and its exit code.
func (s *shell) run(c command, what string) (printed, code string) {
	s.t.Helper()
	// The code of the command before is $? in this one. What does not end with a line
	// break gets one.
	s.send("(exit ${code:-0}); {\n" + c.text + "\n} </dev/null 2>&1; code=$?; printf '\\n" + endMark + "%s\\n' $code")
	lines := s.until(s.lines, what, func(line string) bool {
		var ended bool
		code, ended = strings.CutPrefix(line, endMark)
		return ended
	})
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	for _, line := range lines {
		printed += line + "\n"
	}
	return printed, code
}

// leave types a command that goes on, and waits until it has printed what the page says.
func (s *shell) leave(b step, c command) {
	s.t.Helper()
	what := fmt.Sprintf("line %d: %s", b.line, c.text)
	pipe := filepath.Join(s.t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.send(c.text + " </dev/null >" + pipe + " 2>&1 &")
	out, err := os.Open(pipe)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := make(chan string)
	go scan(out, lines)
	var first string
	printed := s.until(lines, what, func(line string) bool { first = line; return b.until.MatchString(line) })
	printed = append(printed, first)
	if b.breaks {
		s.run(command{text: "kill -INT -- -$! && wait $!"}, "^C")
	}
	read := func() {
		defer out.Close()
		for line := range lines {
			printed = append(printed, line)
		}
	}
	if !b.breaks {
		s.left.Go(read)
		return
	}
	read()
	if text := strings.Join(printed, "\n") + "\n"; !c.matches(text) {
		s.t.Fatalf("%s\nprinted\n%sthe page shows\n%s", what, text, strings.Join(c.shown, "\n"))
	}
}
