package admin

import (
	"fmt"
	"net/http"
)

// checksumInfo is a partition's checksums in JSON; numbers of 64 bits are hexadecimal
// text. An empty topic is the tables and keyed state of the placement group, or the
// catalog.
type checksumInfo struct {
	Catalog   bool   `json:"catalog,omitempty"`
	Vhost     string `json:"vhost"`
	Topic     string `json:"topic"`
	Partition uint64 `json:"partition"`
	Index     uint64 `json:"index"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Records   string `json:"records"`
	Windows   string `json:"windows"`
}

// clusterChecksums is GET /api/cluster/checksums: what the asked node's replicas
// hold. It reads everything, so it is for administrators.
func clusterChecksums(c *clusterCall) error {
	sums, err := c.cluster.Checksums(c.r.Context())
	if err != nil {
		return err
	}
	out := []checksumInfo{}
	for _, s := range sums {
		out = append(out, checksumInfo{
			Catalog: s.Catalog, Vhost: s.Tenant, Topic: s.Topic, Partition: s.Partition, Index: s.Index, Start: s.Start, End: s.End,
			Records: fmt.Sprintf("%016x", s.Records), Windows: fmt.Sprintf("%016x", s.Windows),
		})
	}
	answer(c.w, http.StatusOK, map[string]any{"checksums": out})
	return nil
}
