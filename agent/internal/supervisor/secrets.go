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

// secretDir is the private directory of a command's secrets; its path is known before
// it is made, so that the spool file can say it. The zero value is none.
type secretDir struct {
	path  string
	files []Secret
}

// secretPrefix begins the name of the directory; what has another name is not removed.
const secretPrefix = "harp-secret-"

func newSecretDir(files []Secret) secretDir {
	if len(files) == 0 {
		return secretDir{}
	}
	return secretDir{filepath.Join(os.TempDir(), secretPrefix+rand.Text()), files}
}

// write makes the files, for the command's user alone.
func (d secretDir) write(command proc.Spec) error {
	if d.path == "" {
		return nil
	}
	uid, gid, err := command.Owner()
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return err
	}
	for _, s := range d.files {
		if err := d.writeFile(s, uid, gid); err != nil {
			return err
		}
	}
	return os.Lchown(d.path, uid, gid)
}

func (d secretDir) writeFile(s Secret, uid, gid int) error {
	if err := checkSecretName(s.Name); err != nil {
		return err
	}
	path := filepath.Join(d.path, s.Name)
	if err := os.WriteFile(path, s.Content, 0o600); err != nil {
		return err
	}
	return os.Lchown(path, uid, gid)
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
	}
}

// command replaces what stands for the paths of secrets.
func (d secretDir) command(c proc.Spec) proc.Spec {
	c.Argv, c.Env = d.fillAll(c.Argv), d.fillAll(c.Env)
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
