//go:build unix

package dispatcher_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/dispatcher"
)

// What a hosts script has started is killed with it.
func TestAHungHostsScriptLeavesItsChildren(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough, ended := errors.New("enough"), make(chan error, 1)
	go func() {
		script := "exec 3>" + path + "; echo ready >&3; sleep 1000 & wait"
		_, err := dispatcher.HostScript{Command: []string{"/bin/sh", "-c", script}}.Hosts(ctx)
		ended <- err
	}()
	alive := must[*os.File](t)(os.Open(path))
	defer alive.Close()
	lines := bufio.NewReader(alive)
	must[string](t)(lines.ReadString('\n'))
	cancel(enough)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("it returns %v", err)
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) { // when nobody has it open any more
		t.Error(err)
	}
}

// A hosts script that prints without end takes no memory without end. It takes some: tests
// that count what is allocated do not run beside this one.
func TestAnEndlessHostsScriptIsRefused(t *testing.T) {
	_, err := dispatcher.HostScript{Command: []string{"yes", `{"name":"a"}`}}.Hosts(t.Context())
	if err == nil || !strings.Contains(err.Error(), "prints more than 64 MiB") {
		t.Errorf("it returns %v", err)
	}
}

// A hosts script whose file has lost its content does not say that all hosts are gone.
func TestAHostsScriptThatPrintsNothingIsRefused(t *testing.T) {
	t.Parallel()
	for printed, isRefused := range map[string]bool{"": true, "\n": false} {
		path := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(path, []byte(printed), 0o600); err != nil {
			t.Fatal(err)
		}
		hosts, err := dispatcher.HostScript{Command: []string{"cat", path}}.Hosts(t.Context())
		if (err != nil) != isRefused || len(hosts) > 0 {
			t.Errorf("printing %q it lists %v, %v", printed, hosts, err)
		}
	}
}
