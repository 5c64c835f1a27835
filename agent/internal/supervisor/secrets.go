package supervisor

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
)

// secretDir is the private directory of a command's secrets, of its result and of its
// work; its path is known before it is made, so that the spool file can say it. The zero
// value is none.
type secretDir struct {
	path  string
	files []Secret
	own   bool // the command has it to work in and to leave its result
	tmp   bool // there is a directory beside it that is /tmp for the command
	held  *secretLock
}

// secretLock is the file beside a directory that is locked as long as this process lives, where no spool file says whose
// that is: it is left over when the file is not locked. The zero value is none.
type secretLock struct{ f *os.File }

// Names in the directory that no secret has.
const (
	workName   = ".work"
	resultName = ".result"
)

// resultVariable names the file for the result.
const resultVariable = "HARP_RESULT"

func (d secretDir) work() string   { return filepath.Join(d.path, workName) }
func (d secretDir) result() string { return filepath.Join(d.path, resultName) }

// around is the directory with the command's /tmp: this process's user alone may enter it.
func (d secretDir) around() string { return d.path + ".tmp" }
func (d secretDir) tmpDir() string { return filepath.Join(d.around(), "tmp") }

// lockPath is the file that says whether this process lives.
func (d secretDir) lockPath() string { return d.path + lockSuffix }

// secretPrefix begins the name of the directory; what has another name is not removed.
const (
	secretPrefix = "harp-secret-"
	lockSuffix   = ".lock"
)

func newSecretDir(spec Spec) secretDir {
	if len(spec.Secrets) == 0 && !spec.Private && !spec.PrivateTmp {
		return secretDir{}
	}
	path := filepath.Join(os.TempDir(), secretPrefix+rand.Text())
	return secretDir{path: path, files: spec.Secrets, own: spec.Private, tmp: spec.PrivateTmp, held: new(secretLock)}
}

// write makes the files, for the command's user alone.
func (d secretDir) write(command proc.Spec) error {
	if d.path == "" {
		return nil
	}
	owner, err := command.Owner()
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return err
	}
	for _, s := range d.files {
		if err := d.writeFile(s, owner); err != nil {
			return err
		}
	}
	if d.own {
		if err := os.Mkdir(d.work(), 0o700); err != nil {
			return err
		}
		if err := os.Lchown(d.work(), owner.UID, owner.GID); err != nil {
			return err
		}
	}
	if d.tmp {
		if err := d.writeTmp(); err != nil {
			return err
		}
	}
	return os.Lchown(d.path, owner.UID, owner.GID)
}

// writeLocked is write where nothing else says whose the files are, if this process dies.
func (d secretDir) writeLocked(command proc.Spec) error {
	if d.path == "" {
		return nil
	}
	f, err := os.OpenFile(d.lockPath(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if d.held.f = f; lock(f) != nil {
		d.unlock() // a file system without locks: nobody can tell then
	}
	return d.write(command)
}

// unlock removes the file that is locked, if there is one.
func (d secretDir) unlock() {
	_ = os.Remove(d.lockPath()) // at worst it is left over
	if d.held != nil && d.held.f != nil {
		drop(d.held.f)
		d.held.f = nil
	}
}

func (d secretDir) writeTmp() error {
	if err := os.Mkdir(d.around(), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(d.tmpDir(), 0o700); err != nil {
		return err
	}
	return os.Chmod(d.tmpDir(), os.ModeSticky|0o777) // whatever the umask is
}

func (d secretDir) writeFile(s Secret, owner proc.Owner) error {
	if err := checkSecretName(s.Name); err != nil {
		return err
	}
	path := filepath.Join(d.path, s.Name)
	if err := os.WriteFile(path, s.Content, 0o600); err != nil {
		return err
	}
	return os.Lchown(path, owner.UID, owner.GID)
}

func checkSecretName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return &harp.FieldError{Field: "secrets", Message: "a name that a file can have"}
	}
	return nil
}

// remove removes the files.
func (d secretDir) remove() {
	if strings.HasPrefix(filepath.Base(d.path), secretPrefix) {
		_ = os.RemoveAll(d.path) // what is the user's can be in the way; there is nobody to tell
		_ = os.RemoveAll(d.around())
		d.unlock()
	}
}

// command replaces what stands for paths in the directory.
func (d secretDir) command(c proc.Spec) proc.Spec {
	c.Argv, c.Env = d.fillAll(c.Argv), d.fillAll(c.Env)
	if d.own {
		c.Env = append(c.Env, resultVariable+"="+d.result())
	}
	if c.Dir == PrivateDir {
		c.Dir = d.work()
	}
	if d.tmp {
		c.Tmp = d.tmpDir()
		if d.own || len(d.files) > 0 {
			c.Kept = d.path
		}
	}
	return c
}

func (d secretDir) fillAll(all []string) []string {
	filled := make([]string, len(all))
	for i, s := range all {
		filled[i] = string(d.fill([]byte(s)))
	}
	return filled
}

func (d secretDir) fill(b []byte) []byte {
	for _, s := range d.files {
		b = bytes.ReplaceAll(b, []byte(SecretPath(s.Name)), []byte(filepath.Join(d.path, s.Name)))
	}
	return b
}
