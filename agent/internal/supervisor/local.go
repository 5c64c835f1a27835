package supervisor

import (
	"context"
	"time"
)

// local is an attempt inside this process.
type local struct{ *engine }

// startLocal starts a command in this process.
func startLocal(spec Spec, o Options) (*Handle, error) {
	cgroup, err := newCgroup(spec)
	if err != nil {
		return nil, err
	}
	secrets := newSecretDir(spec)
	e := newEngine(spec, newMemory(spec.MaxSpool), secrets, cgroup)
	e.pressure.on = o.Hold
	var launcher []string
	if Available() {
		launcher = selfLauncher
	}
	err = secrets.writeLocked(spec.Command)
	if err == nil {
		err = o.commit()
	}
	if err == nil {
		if err = e.start(launcher); err != nil {
			o.retract()
		}
	}
	if err != nil {
		secrets.remove()
		removeCgroup(cgroup)
		return nil, err
	}
	return &Handle{spec.Key, local{e}}, nil
}

// Forget has nothing to remove.
func (l local) Forget() error {
	if l.news().end == nil {
		return ErrRunning
	}
	return nil
}

// EndOrphans has nothing to end: this process lives.
func (l local) EndOrphans(context.Context, time.Duration) error { return nil }

// Close ends the command.
func (l local) Close() error {
	l.Hold(false)
	l.Stop(causeCancel)
	l.works.Wait()
	return nil
}
