//go:build !unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// drainSignal makes no agent drain here: nobody can send it.
var drainSignal os.Signal = noSignal{}

type noSignal struct{}

func (noSignal) String() string { return "none" }
func (noSignal) Signal()        {}

// drainAgent fails: there are no signals.
func (c *cli) drainAgent(context.Context, string) error {
	return fmt.Errorf("--drain: %w on this system", errors.ErrUnsupported)
}
