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
}

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

// secretPrefix begins the name of the directory; what has another name is not removed.
const secretPrefix = "harp-secret-"

func newSecretDir(spec Spec) secretDir {
	if len(spec.Secrets) == 0 && !spec.Private && !spec.PrivateTmp {
		return secretDir{}
	}
	return secretDir{filepath.Join(os.TempDir(), secretPrefix+rand.Text()), spec.Secrets, spec.Private, spec.PrivateTmp}
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
