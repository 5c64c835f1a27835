//go:build linux && !race

package faults

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/faults/actor"
)

// disk is an image with a file system that writes of its own accord as late as can
// be, so that what was not synced is not in the image.
type disk struct {
	t     *testing.T
	dir   string
	n     int // of cuts so far
	mount string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	d.mount = filepath.Join(d.dir, "mount")
	must(t, os.Mkdir(d.mount, 0o700))
	image, err := os.Create(d.image())
	must(t, err)
	must(t, image.Truncate(1<<30))
	must(t, image.Close())
	command(t, "mkfs.ext4", "-q", "-F", d.image())
	d.attach()
	t.Cleanup(func() { _ = syscall.Unmount(d.mount, syscall.MNT_DETACH) })
	return d
}

func (d *disk) image() string {
	return filepath.Join(d.dir, "image"+string(rune('a'+d.n%2)))
}

func (d *disk) attach() {
	d.t.Helper()
	mounted(d.t, "-o", "loop,commit=60", d.image(), d.mount)
}

// cut cuts the power: what runs on the disk stops at once, and from then on there
// is only what was in the image at that moment.
func (d *disk) cut(processes ...*Process) {
	d.t.Helper()
	for _, p := range processes {
		must(d.t, p.Signal(syscall.SIGSTOP))
	}
	before := d.image()
	d.n++
	command(d.t, "cp", "--sparse=always", before, d.image())
}

// restore puts the image in the place of what the processes knew, once they are
// dead.
func (d *disk) restore() {
	d.t.Helper()
	must(d.t, syscall.Unmount(d.mount, 0))
	d.attach()
}

// powerCuts runs a fleet on a disk whose power is cut again and again, and returns
// what was broken.
func powerCuts(t *testing.T, cuts int, lasts time.Duration) (*Load, time.Duration, []string) {
	t.Helper()
	f := newFleet(t)
	d := newDisk(t)
	f.Dispatcher.Dir = filepath.Join(d.mount, "store")
	f.Agent.Dir = filepath.Join(d.mount, "agent")
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	const host = "host00"
	startAgents(t, f, all[0], host)
	l := &Load{
		Fleet: f, Callers: all, Hosts: []string{host}, Rate: pick(600, 3000), Workers: 96,
		Args: smallAndLong, Plain: true,
	}
	took := underLoad(t, l, func(r *rand.Rand) {
		for range cuts {
			between(r, lasts/2, lasts)
			d.cut(f.AgentProcess(host), f.DispatcherProcess())
			f.KillDispatcher()
			f.KillAgentUnread(host)
			d.restore()
			must(t, f.StartDispatcher())
			must(t, f.StartAgent(host))
		}
	})
	return l, took, settled(t, f, all[0])
}

// smallAndLong are jobs with few records, of some of which the chunks are longer than
// what the store keeps beside its rows.
func smallAndLong(r *rand.Rand) actor.Args {
	a := actor.Args{Records: r.IntN(3)}
	if r.IntN(100) == 0 {
		a.Size = 40 << 10
	}
	return a
}

// T4: the power is cut: only what was synced is there afterwards.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l, took, broken := powerCuts(t, pick(4, 50), pick(2*time.Second, 7*time.Second))
	complain(t, broken)
	loaded(t, l, took)
}
