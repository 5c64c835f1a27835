package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/harpcaller/harp/agent/internal/access"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// script is a file that a command executes, as it is named there.
type script struct {
	name    string
	program bool // it is looked for in the PATH, if there is no slash in its name
}

// checkScripts reports whether only root, the agent's user and the command's own could
// change what is executed: the files, what is on the way to them, and the interpreters that
// their first lines name. What is not there is not looked at: starting it fails. The error
// is an *access.UntrustedError, or of the file system.
func (c *Command) checkScripts(scripts []script) error {
	var users []uint32
	u, err := lookup(c.process.User)
	if proc.IsShort(err) {
		return err
	}
	if err == nil && c.process.User != "" {
		if uid, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			users = append(users, uint32(uid))
		}
	}
	for _, s := range scripts {
		if err := c.checkScript(s, users); err != nil && !absent(err) {
			return err
		}
	}
	return nil
}

func (c *Command) checkScript(s script, users []uint32) error {
	path, err := c.find(s)
	if err == nil {
		err = access.CheckPath(path, users...)
	}
	if err != nil {
		return err
	}
	return c.checkInterpreter(path, users)
}

// checkThere reports whether a script is missing, or not executable, on this machine as it is
// now. What is looked for in the PATH, or in a folder that is made for the job, is not checked.
func (c *Command) checkThere(s script) error {
	if s.program && !strings.Contains(s.name, "/") {
		return nil
	}
	path, err := c.find(s)
	if err != nil {
		return nil //nolint:nilerr // the folder is made later
	}
	if err := isThere(path, s.program); err != nil {
		return err
	}
	words, err := shebang(path)
	if err != nil || len(words) == 0 || !filepath.IsAbs(words[0]) {
		return nil //nolint:nilerr // the command's user may be able to read it
	}
	if err := isThere(words[0], true); err != nil {
		return fmt.Errorf("the interpreter of %s: %w", path, err)
	}
	return nil
}

// isThere reports whether a file is missing or, if it is to be a program, not executable.
func isThere(path string, program bool) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrPermission): // the command's user may be allowed to look
		return nil
	case err != nil:
		return fmt.Errorf("%s does not exist", path)
	case program && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// absent reports whether a file cannot be executed either.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// checkInterpreter looks at the program that a script's first line names; and at the one
// behind it that env is to find.
func (c *Command) checkInterpreter(path string, users []uint32) error {
	words, err := shebang(path)
	if len(words) > 2 {
		words = words[:2]
	}
	for i, name := range words {
		if i > 0 && filepath.Base(words[0]) != "env" {
			break
		}
		path, err := c.find(script{name, true})
		if err == nil {
			err = access.CheckPath(path, users...)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// shebang returns the words of a script's first line; none if it is another program.
func shebang(path string) ([]string, error) {
	const longest = 256
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, longest)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	line, is := strings.CutPrefix(line, "#!")
	if !is {
		return nil, nil
	}
	return strings.Fields(line), nil
}

// find returns the path of a script as the command would find it. The error is
// fs.ErrNotExist.
func (c *Command) find(s script) (string, error) {
	switch {
	case filepath.IsAbs(s.name):
		return s.name, nil
	case !s.program, strings.Contains(s.name, "/"):
		dir := c.process.Dir
		switch dir {
		case "":
			dir = "/"
		case supervisor.PrivateDir: // nothing is there before it runs
			return "", fs.ErrNotExist
		}
		return filepath.Join(dir, s.name), nil
	}
	for _, dir := range filepath.SplitList(c.path()) {
		path := filepath.Join(dir, s.name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && filepath.IsAbs(dir) && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fs.ErrNotExist
}

// path is the PATH of the command, in which no argument has a say.
func (c *Command) path() string {
	for _, s := range c.env {
		if s.name == "PATH" && len(s.value) == 1 {
			return s.value[0].literal
		}
	}
	for _, name := range c.passEnv {
		if path, ok := os.LookupEnv(name); ok && name == "PATH" {
			return path
		}
	}
	return defaultPath
}
