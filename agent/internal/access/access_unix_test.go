//go:build unix

package access

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp/internal/needs"
)

// tree is a directory a/b with a file f in it, and a link to that beside a.
func tree(t *testing.T) (a, b, f, link string) {
	t.Helper()
	root := t.TempDir()
	a, b = filepath.Join(root, "a"), filepath.Join(root, "a", "b")
	f, link = filepath.Join(b, "f"), filepath.Join(root, "link")
	err := errors.Join(os.Chmod(root, 0o700), os.Mkdir(a, 0o700), os.Mkdir(b, 0o700), os.WriteFile(f, nil, 0o600), os.Symlink("a/b/f", link)) //nolint:gosec // a directory
	if err != nil {
		t.Fatal(err)
	}
	return a, b, f, link
}

func TestCheckPath(t *testing.T) {
	a, b, f, link := tree(t)
	for _, test := range []struct {
		path string
		mode fs.FileMode
		bad  bool
	}{
		{f, 0o644, false},
		{f, 0o664, true},
		{f, 0o602, true},
		{b, 0o755, false},
		{b, 0o757, true},
		{b, 0o777 | fs.ModeSticky, false},
		{a, 0o702, true},
	} {
		info, err := os.Stat(test.path)
		if err == nil {
			err = os.Chmod(test.path, test.mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{f, link, filepath.Join(a, "..", "a", "b", "f")} {
			err := CheckPath(path)
			var wrong *UntrustedError
			if is := errors.As(err, &wrong); is != test.bad || is && (wrong.Path != test.path || !strings.Contains(err.Error(), "chmod go-w")) {
				t.Errorf("%s with %s at %v: %v", path, test.path, test.mode, err)
			}
		}
		if err := os.Chmod(test.path, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckPath(f + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if err := os.Symlink("loop", filepath.Join(b, "loop")); err != nil {
		t.Fatal(err)
	}
	if err := CheckPath(filepath.Join(b, "loop")); err == nil {
		t.Error("a circle of links is taken")
	}
}

// TestPrivateGroup checks that the group that has its owner's number is the owner's.
func TestPrivateGroup(t *testing.T) {
	needs.Root(t)
	_, b, f, _ := tree(t)
	for gid, bad := range map[int]bool{0: false, 65534: true} {
		if err := errors.Join(os.Chown(b, 0, gid), os.Chmod(b, 0o770)); err != nil { //nolint:gosec // that is what is tested
			t.Fatal(err)
		}
		var wrong *UntrustedError
		if err := CheckPath(f); errors.As(err, &wrong) != bad {
			t.Errorf("in group %d: %v", gid, err)
		}
	}
}

func TestOwners(t *testing.T) {
	needs.Root(t)
	_, b, f, link := tree(t)
	for _, path := range []string{b, f, link} {
		if err := os.Lchown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		var wrong *UntrustedError
		if err := CheckPath(link); !errors.As(err, &wrong) || wrong.Path != path || !strings.Contains(wrong.Message, "is owned by user 65534") {
			t.Errorf("a foreign %s: %v", path, err)
		}
		if err := CheckPath(link, 65534); err != nil {
			t.Errorf("a %s of a user that is trusted: %v", path, err)
		}
		if err := CheckOwn(path); !errors.As(err, &wrong) {
			t.Errorf("a foreign %s is taken for our own: %v", path, err)
		}
		if err := os.Lchown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(CheckOwn(b), CheckOwn(f)); err != nil {
		t.Error(err)
	}
}
