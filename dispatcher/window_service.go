package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/harpcaller/harp"
)

// PutWindow implements harp.MaintenanceService.
func (s *service) PutWindow(ctx context.Context, id string, w harp.Window) error {
	return errors.ErrUnsupported
}

// DeleteWindow implements harp.MaintenanceService.
func (s *service) DeleteWindow(ctx context.Context, id, name string) error {
	return errors.ErrUnsupported
}

// EndWindow implements harp.MaintenanceService.
func (s *service) EndWindow(ctx context.Context, id, name string) error { return errors.ErrUnsupported }

// ListWindows implements harp.MaintenanceService.
func (s *service) ListWindows(ctx context.Context, name, cursor string) (harp.Page[harp.WindowStatus], error) {
	return harp.Page[harp.WindowStatus]{}, errors.ErrUnsupported
}

// WindowSpans implements harp.MaintenanceService.
func (s *service) WindowSpans(ctx context.Context, name string, from, to time.Time) ([]harp.Span, error) {
	return nil, errors.ErrUnsupported
}

// JudgeStart implements harp.MaintenanceService.
func (s *service) JudgeStart(ctx context.Context, host, procedure string, at time.Time) (harp.Verdict, error) {
	return harp.Verdict{}, errors.ErrUnsupported
}

// PauseHosts implements harp.MaintenanceService.
func (s *service) PauseHosts(ctx context.Context, id, expr string, c harp.HostPauseChange) (int, error) {
	return 0, errors.ErrUnsupported
}
