package harp

// Limits of what callers, agents and dispatchers say to each other, the only place for them.
// Sizes are in bytes.
const (
	MaxArgs           = 1 << 20
	MaxResult         = 1 << 20
	MaxInfo           = 64 << 10
	MaxRecord         = 64 << 10 // the value of one
	MaxHostName       = 255
	MaxProcedureName  = 128
	MaxQueueName      = 1 << 10 // encoded
	MaxLabels         = 16      // of a job or a host
	MaxUnset          = 64      // labels of hosts, at a time
	MaxLabelKey       = 64
	MaxLabelValue     = 256
	MaxTraceParent    = 256
	MaxNeeds          = 16 // of a request
	MaxNeed           = 64 // the name of a feature
	MaxIdempotencyKey = 256
	MaxWhy            = 1 << 10 // why a job is given up
	MaxEventTypes     = 64      // of an EventFilter
	MaxCalls          = 500     // that Caller.Submit makes at a time
	MaxWaited         = 1000    // jobs that one request of Caller.WaitAll waits for
	MaxGroupName      = 128
	MaxGroupTarget    = 512 << 10
	MaxTarget         = 4 << 10 // of a batch, but for a list of names
	MaxHostList       = 1 << 20 // names of hosts that a batch lists, with their lengths
	MaxWaves          = 100     // of a batch
	MaxSteps          = 32      // of a chain
	MaxRetried        = 32      // kinds of ends that Batch.Retry is asked for
	MaxScheduleName   = 128
	MaxScheduleDoc    = 1 << 10
	MaxCron           = 1 << 10
	MaxDependencies   = 16 // of Schedule.After
	MaxTZ             = 64
	MaxNextTimes      = 1000 // that Schedules.Next is asked for
	MaxBackfill       = 1000 // times that Schedules.Backfill has run
	MaxCatchUp        = 1000 // times that Schedule.CatchUpMost lets fire late
	MaxWindowName     = 128
	MaxWindowPatterns = 64        // of Window.Procedures, of Window.Exempt and of WindowCalendar.Zones
	MaxWindowSpans    = 1000      // that Maintenance.Spans returns
	MaxCalendar       = 768 << 10 // the file of a window
	MaxDocuments      = 1000      // that Schedules.Apply is given
	MaxManagedBy      = 128       // who manages them
	MaxMailTo         = 20        // addresses of a notification
	MaxMailAddress    = 254
	MaxReceiverURL    = 2 << 10 // of a Webhook

	MaxNotificationName     = 128
	MaxNotificationPatterns = 64 // of Notification.On, of Procedures and of Schedules
	MaxDriftName            = 64
	MaxDrifts               = 100      // names under which hosts are marked: see Drift
	MaxMessageData          = 64 << 10 // what a message has for programs
	MaxRetentionName        = 128
	MaxRetentionRules       = 100
)
