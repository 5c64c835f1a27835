package supervisor

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// TestAsUserWithoutItsGroups checks that nothing is read on behalf of a command whose groups the
// thread cannot take on: it would be read with those of the agent.
func TestAsUserWithoutItsGroups(t *testing.T) {
	const most = 1 << 16 // that the kernel takes
	command := proc.Spec{User: strconv.Itoa(os.Geteuid() + 1), Group: "1", Groups: slices.Repeat([]string{"1"}, most+1)}
	read := false
	if err := asUser(command, func() error { read = true; return nil }); err == nil || read {
		t.Errorf("it is read: %v; the error is %v", read, err)
	}
}
