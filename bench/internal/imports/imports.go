// Package imports measures what it costs a program to import a library: each folder
// here is a program that does no more.
package imports

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// What is measured.
var (
	Size    = measure.Metric{Name: "size", Unit: "MiB", Lower: true}
	Modules = measure.Metric{Name: "modules", Unit: "", Lower: true}
)

const path = "github.com/harpcaller/harp/bench/internal/imports/"

// Import builds one of the programs, stripped. It needs the go command and must be
// run in the bench module.
func Import(name string) measure.Subject {
	return measure.Subject{
		Name: name,
		Setup: func(_ context.Context, l *lab.Lab) (measure.Rig, error) {
			return measure.NewRig(func(ctx context.Context, _ measure.Point) (measure.Sample, error) {
				return build(ctx, l, name)
			}, func() error { return nil }), nil
		},
	}
}

func build(ctx context.Context, l *lab.Lab, name string) (measure.Sample, error) {
	dir, err := l.Fresh("import")
	if err != nil {
		return nil, err
	}
	to := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", to, path+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	info, err := os.Stat(to)
	if err != nil {
		return nil, err
	}
	built, err := buildinfo.ReadFile(to)
	if err != nil {
		return nil, err
	}
	return measure.Sample{Size.Name: float64(info.Size()) / (1 << 20), Modules.Name: float64(len(built.Deps))}, nil
}
