package harptest

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
)

// PutWindow implements harp.MaintenanceService.
func (f fakeService) PutWindow(context.Context, string, harp.Window) error {
	return errFake
}

// DeleteWindow implements harp.MaintenanceService.
func (f fakeService) DeleteWindow(context.Context, string, string) error {
	return errFake
}

// EndWindow implements harp.MaintenanceService.
func (f fakeService) EndWindow(context.Context, string, string) error { return errFake }

// ListWindows implements harp.MaintenanceService.
func (f fakeService) ListWindows(context.Context, string, string) (harp.Page[harp.WindowStatus], error) {
	return harp.Page[harp.WindowStatus]{}, errFake
}

// WindowSpans implements harp.MaintenanceService.
func (f fakeService) WindowSpans(context.Context, string, time.Time, time.Time) ([]harp.Span, error) {
	return nil, errFake
}

// PreviewWindow implements harp.MaintenanceService.
func (f fakeService) PreviewWindow(context.Context, harp.Window, time.Time, time.Time) ([]harp.Span, error) {
	return nil, errFake
}

// JudgeStart implements harp.MaintenanceService.
func (f fakeService) JudgeStart(context.Context, string, string, time.Time) (harp.Verdict, error) {
	return harp.Verdict{}, errFake
}

// PauseHosts implements harp.MaintenanceService.
func (f fakeService) PauseHosts(context.Context, string, string, harp.HostPauseChange) (int, error) {
	return 0, errFake
}
