package main

import (
	"io"
	"os"
	"runtime/pprof"
	"runtime/trace"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// watch begins the profiles that were asked for; stop ends them.
func watch(s settings) (stop func() error, err error) {
	var open lab.Closers
	if s.profile != "" {
		if err := begin(&open, s.profile, pprof.StartCPUProfile, pprof.StopCPUProfile); err != nil {
			return nil, open.Unless(err)
		}
	}
	if s.trace != "" {
		if err := begin(&open, s.trace, trace.Start, trace.Stop); err != nil {
			return nil, open.Unless(err)
		}
	}
	return open.Close, nil
}

func begin(open *lab.Closers, path string, start func(io.Writer) error, end func()) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	open.Add(f.Close)
	if err := start(f); err != nil {
		return err
	}
	open.Add(func() error { end(); return nil })
	return nil
}
