package main

import (
	"github.com/harpcaller/harp/bench/internal/imports"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/bench/internal/peer/grpc"
	"github.com/harpcaller/harp/bench/internal/peer/harp"
	"github.com/harpcaller/harp/bench/internal/peer/jetstream"
	"github.com/harpcaller/harp/bench/internal/peer/limit"
	"github.com/harpcaller/harp/bench/internal/peer/netrpc"
	"github.com/harpcaller/harp/bench/internal/peer/redis"
	"github.com/harpcaller/harp/bench/internal/peer/river"
)

// roles are what other processes of this program do.
var roles = map[string]lab.Role{
	harp.DispatcherRole:      harp.RunDispatcher,
	harp.AgentsRole:          harp.RunAgents,
	harp.FillerRole:          harp.RunFiller,
	limit.DeskRole:           limit.RunDesk,
	limit.WorkerRole:         limit.RunWorker,
	jetstream.ServerRole:     jetstream.RunServer,
	jetstream.RespondersRole: jetstream.RunResponders,
	grpc.ClientsRole:         grpc.RunClients,
	grpc.ServerRole:          grpc.RunServer,
	netrpc.ServerRole:        netrpc.RunServer,
	redis.ServerRole:         redis.RunServer,
	river.ServerRole:         river.RunServer,
}

// workloads are all there are, in the order they are run.
func workloads() []measure.Workload {
	return []measure.Workload{
		durableJob(), directCall(), liveRecords(), durableRecords(), replay(),
		idleAgents(), restart(), fanOut(), storedJobs(), importCost(),
	}
}

func durableJob() measure.Workload {
	return measure.Workload{
		Name: "durable-job",
		What: "submit a job, run it on an agent, read its result; synced to disk before every acknowledgement",
		Axis: "in flight", Points: []int{1, 16, 256, 1024, 4096}, Quick: []int{1, 256}, Warm: true,
		Metrics: []measure.Metric{measure.Rate, measure.P50, measure.P99},
		Subjects: []measure.Subject{
			harp.Durable(), jetstream.Durable(), jetstream.DurableTuned(), redis.Asynq(), river.Durable(), river.DurableAtOnce(),
			harp.DurableTogether(), limit.Durable(), limit.Bare(), limit.BareTogether(),
		},
		Named: []measure.Named{{
			Subject: "River", At: 4096,
			Why: "River completes jobs in batches. With few in flight a job waits for the next batch; here batches are full",
		}},
	}
}

func directCall() measure.Workload {
	return measure.Workload{
		Name: "direct-call",
		What: "call a procedure in another process and read its answer; nothing is stored",
		Axis: "in flight", Points: []int{1, 16, 256, 1024, 4096}, Quick: []int{1, 256}, Warm: true,
		Metrics: []measure.Metric{measure.Rate, measure.P50, measure.P99},
		Subjects: []measure.Subject{
			harp.Direct(), grpc.Direct(), grpc.DirectTuned(), jetstream.Direct(), jetstream.DirectTuned(), netrpc.Direct(), limit.Direct(),
		},
	}
}

func liveRecords() measure.Workload {
	return measure.Workload{
		Name: "live-records",
		What: "read the records of one direct call as they come; nothing is stored",
		Axis: "records", Points: []int{1_000_000}, Quick: []int{100_000},
		Metrics:  []measure.Metric{measure.Rate},
		Subjects: []measure.Subject{harp.Live(), grpc.Live(), grpc.LiveTuned()},
	}
}

func durableRecords() measure.Workload {
	return measure.Workload{
		Name: "durable-records",
		What: "store the records of one job and follow them; synced to disk before they are acknowledged",
		Axis: "bytes each", Points: []int{100, 4096}, Quick: []int{100, 4096},
		Metrics: []measure.Metric{measure.Rate},
		Subjects: []measure.Subject{
			harp.Records(), jetstream.Records(), redis.Records(), harp.RecordsTogether(), limit.Records(),
		},
	}
}

func replay() measure.Workload {
	return measure.Workload{
		Name: "replay",
		What: "read the stored records of one job from their beginning",
		Axis: "records", Points: []int{1_000_000}, Quick: []int{50_000},
		Metrics:  []measure.Metric{measure.Rate},
		Subjects: []measure.Subject{harp.Replay(), jetstream.Replay(), redis.Replay()},
	}
}

func idleAgents() measure.Workload {
	return measure.Workload{
		Name: "idle-agents",
		What: "what agents that do nothing cost their dispatcher",
		Axis: "agents", Points: []int{10_000}, Quick: []int{500}, Rounds: 1, Beside: true,
		Metrics:  []measure.Metric{measure.Memory, measure.AtRest},
		Subjects: []measure.Subject{harp.Idle(), jetstream.Idle(), jetstream.IdleTuned(), grpc.Idle(), grpc.IdleTuned()},
	}
}

func restart() measure.Workload {
	return measure.Workload{
		Name: "restart",
		What: "a dispatcher that is killed and started again, until all its agents are back",
		Axis: "agents", Points: []int{10_000}, Quick: []int{500},
		Metrics:  []measure.Metric{measure.Back, measure.Asked},
		Subjects: []measure.Subject{harp.Restart()},
	}
}

func fanOut() measure.Workload {
	return measure.Workload{
		Name: "fan-out",
		What: "the same call to each of many agents, until all their results are read",
		Axis: "agents", Points: []int{10_000}, Quick: []int{500}, Rounds: 3, Alone: true,
		Metrics:  []measure.Metric{measure.Rate, measure.First},
		Subjects: []measure.Subject{harp.FanOut(), harp.FanOutOneByOne(), jetstream.FanOut(), jetstream.FanOutTuned()},
	}
}

func storedJobs() measure.Workload {
	return measure.Workload{
		Name: "stored-jobs",
		What: "open a store that was killed, list jobs and submit one at a time",
		Axis: "jobs", Points: []int{1000, 10_000, 100_000, 1_000_000}, Quick: []int{1000, 10_000}, Rounds: 3,
		Metrics:  []measure.Metric{harp.Open, harp.PageTime, harp.SubmitAt, harp.Submit90, harp.ToEmpty, harp.RSS},
		Subjects: []measure.Subject{harp.Stored()},
	}
}

func importCost() measure.Workload {
	w := measure.Workload{
		Name: "import",
		What: "the size, stripped, and the modules of a program that imports a library and does nothing",
		Axis: "imports", Points: []int{1}, Quick: []int{1}, Rounds: 1,
		Metrics: []measure.Metric{imports.Size, imports.Modules},
	}
	for _, name := range []string{"harp", "nats", "asynq", "river", "grpc", "nothing"} {
		w.Subjects = append(w.Subjects, imports.Import(name))
	}
	return w
}
