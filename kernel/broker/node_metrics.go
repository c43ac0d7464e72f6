package broker

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// replicaCollector gives the figures of the replicas, of their log and of the disk that they
// are on, also while the node does not serve.
type replicaCollector struct{ n *Node }

var (
	descServing  = desc("cluster_serving", "1 while this node serves the clients of all nodes.")
	descMembers  = desc("cluster_members", "Nodes of the cluster, by whether this one has heard of them lately.", "state")
	descLeads    = desc("raft_leader", "1 while this node leads the group.", "group")
	descTerm     = desc("raft_term", "Term of the group.", "group")
	descCommitAt = desc("raft_commit_index", "Index up to which the group's log is known to be committed.", "group")
	descApplied  = desc("raft_applied_index", "Index up to which the group's log is applied here.", "group")
	descLogBytes = desc("raft_log_bytes", "Bytes of the group's log that are kept.", "group")
	descVoters   = desc("raft_voters", "Members of the group that vote.", "group")
	descWhole    = desc("replica_whole", "1 while all segments of the placement group are here.")
	descPulled   = desc("replica_segments_pulled_total", "Segments that have come from other nodes.")
	descPulledB  = desc("replica_pulled_bytes_total", "Bytes of segments that have come from other nodes.")
	descLapses   = desc("lease_lapses_total", "How often deliveries have waited for the leader's lease.")
	descExpiry   = desc("cluster_certificate_expiry_timestamp_seconds", "When the certificate that the node shows to others ceases to be valid.")
	descAlarm    = desc("alarm", "1 while the node is short of that: if it serves, publishes are refused.", "resource")
	descRaised   = desc("alarms_total", "How often the node has become short of that.", "resource")
	descDiskFree = desc("disk_free_bytes", "Free bytes of the volume of the data directory.")
	descSyncs    = desc("wal_syncs_total", "Syncs of the write-ahead log.")
	descSyncTime = desc("wal_sync_seconds_total", "Time spent in syncs of the write-ahead log.")
	descWALBytes = desc("wal_appended_bytes_total", "Bytes appended to the write-ahead log.")
	descWALFiles = desc("wal_files", "Files of the write-ahead log.")
	descRebased  = desc("replica_rebased_total", "Checkpoints of other nodes taken because segments that were missing are nowhere any more.")
)

// Describe implements prometheus.Collector.
func (c replicaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descServing, descMembers, descLeads, descTerm, descCommitAt, descApplied, descLogBytes, descVoters,
		descWhole, descPulled, descPulledB, descRebased, descLapses, descExpiry, descAlarm, descRaised, descDiskFree,
		descSyncs, descSyncTime, descWALBytes, descWALFiles} {
		ch <- d
	}
	for _, d := range trafficDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c replicaCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n := c.n
	n.traffic.collect(ch)
	n.alarms.collect(ch)
	free, _ := n.durable.Disk()
	gauge(descDiskFree, float64(free))
	gauge(descServing, flag(n.facade.Load() != nil))
	gauge(descWhole, flag(n.durable.Whole()))
	if n.cluster != nil {
		if until, ok := n.cluster.CertificateExpiry(); ok {
			gauge(descExpiry, float64(until.Unix()))
		}
	}
	n.collectWAL(ch)
	m := n.durable.Metrics()
	for d, v := range map[*prometheus.Desc]uint64{descPulled: m.Pulled.Load(), descPulledB: m.PulledBytes.Load(), descRebased: m.Rebased.Load(), descLapses: m.Lapses.Load()} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	reachable, missing := 0, 0
	for _, m := range n.Members() {
		if m.Reachable {
			reachable++
		} else {
			missing++
		}
	}
	gauge(descMembers, float64(reachable), "reachable")
	gauge(descMembers, float64(missing), "missing")
	for _, g := range []struct {
		id   int
		raft *raftgroup.Group
	}{{metasvc.CatalogGroup, n.catalog.Raft()}, {durablePlacement, n.durable.Raft()}} {
		id, stats := strconv.Itoa(g.id), g.raft.Stats()
		leads, _ := g.raft.Leader()
		gauge(descLeads, flag(leads), id)
		gauge(descTerm, float64(stats.Term), id)
		gauge(descCommitAt, float64(stats.CommitIndex), id)
		gauge(descApplied, float64(stats.AppliedIndex), id)
		gauge(descLogBytes, float64(stats.LogBytes), id)
		gauge(descVoters, float64(voters(g.raft)), id)
	}
}

// collectWAL gives the figures of the log, which all replicas of the node share.
func (n *Node) collectWAL(ch chan<- prometheus.Metric) {
	s := n.wal.Stats()
	for d, v := range map[*prometheus.Desc]float64{descSyncs: float64(s.Syncs), descSyncTime: s.SyncTime.Seconds(), descWALBytes: float64(s.AppendedBytes)} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	ch <- prometheus.MustNewConstMetric(descWALFiles, prometheus.GaugeValue, float64(s.Files))
}

func (a *alarms) collect(ch chan<- prometheus.Metric) {
	now := a.now.Load()
	for i, on := range []bool{now.Disk.On, now.Memory.On, now.Replicas.On} {
		name := [...]string{"disk", "memory", "replicas"}[i]
		ch <- prometheus.MustNewConstMetric(descAlarm, prometheus.GaugeValue, flag(on), name)
		ch <- prometheus.MustNewConstMetric(descRaised, prometheus.CounterValue, float64(a.raised[i].Load()), name)
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// register adds the metrics of the replicas.
func (n *Node) register() error {
	r := n.cfg.Registerer
	if r == nil {
		return nil
	}
	c := replicaCollector{n}
	if err := r.Register(c); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	n.onClose = func() { r.Unregister(c) }
	return nil
}
