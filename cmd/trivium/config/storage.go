package config

import (
	"time"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// Storage is about the files of the log.
type Storage struct {
	ScrubInterval time.Duration `key:"scrub_interval" default:"168h" min:"0s" about:"how often the segments are read whole to find damage early, 0 = never"`
	ScrubRate     Bytes         `key:"scrub_rate" default:"4MiB" min:"64KiB" about:"bytes of them that are read in a second"`
}

// Retention is what stays of what has been settled.
type Retention struct {
	Budget Bytes `key:"budget" default:"0" about:"settled records that the node keeps in all, 0 = a fifth of the volume, at most 50 GiB"`
}

// Retained bounds the retained messages of each tenant.
type Retained struct {
	Messages int   `key:"messages" default:"2000000" min:"1" about:"retained messages of a tenant"`
	Bytes    Bytes `key:"bytes" default:"1GiB" min:"1" about:"size of them with their names"`
}

// Backlog bounds what waits for a session.
type Backlog struct {
	Bytes Bytes         `key:"bytes" default:"256MiB" min:"1" about:"what waits for a session on one topic; beyond that the oldest messages are dropped"`
	Age   time.Duration `key:"age" default:"168h" min:"1s" about:"how long they wait"`
}

// Limits are the broker's part of these.
func (c *Config) Limits() broker.Limits {
	return broker.Limits{
		Retained: c.Retained.Messages, RetainedBytes: int64(c.Retained.Bytes),
		BacklogBytes: int64(c.Backlog.Bytes), BacklogAge: c.Backlog.Age,
	}
}
