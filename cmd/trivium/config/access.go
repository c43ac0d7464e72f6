package config

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Admin is an administrator that is put right at every start.
type Admin struct {
	User         string `key:"user" about:"''name'' of an administrator who is put right at every start, in place of guest at the first"`
	Password     string `key:"password" secret:"yes" about:"their ''password'', if not password_hash"`
	PasswordHash string `key:"password_hash" secret:"yes" about:"''hash'' of their password"`
}

// Access is for clients without credentials, or with wrong ones.
type Access struct {
	Anonymous     bool   `key:"anonymous" default:"true" about:"clients without credentials: from the loopback as guest, or as anonymous_user"`
	AnonymousUser string `key:"anonymous_user" about:"''user'' that clients without credentials are, from anywhere"`

	MaxDelay time.Duration `key:"max_delay" default:"5s" min:"100ms" max:"1m" about:"how long a login waits at most because of wrong ones before it"`
	BanAfter int           `key:"ban_after" default:"100" min:"0" max:"1000000" about:"wrong logins of an address (IPv6: /64) after which it is refused for ban_time; 0 = never"`
	BanTime  time.Duration `key:"ban_time" default:"1m" min:"1s" max:"24h" about:"see ban_after"`
}

// Topics and Queues are what is made when it is first named.
type Topics struct {
	AutoCreate bool `key:"auto_create" default:"true" about:"Kafka clients make topics by naming them"`
	Partitions int  `key:"partitions" default:"1" min:"1" max:"1000" about:"partitions of topics made so"`
}

// Queues see Topics.
type Queues struct {
	AutoCreate bool `key:"auto_create" default:"true" about:"a publish to the default exchange makes the queue"`
}

// Settings are the broker's part.
func (c *Config) Settings() *broker.Settings {
	s := broker.DefaultSettings()
	s.Anonymous, s.AnonymousUser = c.Access.Anonymous, c.Access.AnonymousUser
	s.Logins.MaxDelay, s.Logins.BanAfter, s.Logins.BanTime = c.Access.MaxDelay, c.Access.BanAfter, c.Access.BanTime
	if c.Access.BanAfter == 0 {
		s.Logins.BanAfter = -1
	}
	s.AutoCreateTopics, s.AutoCreatePartitions, s.AutoCreateQueues = c.Topics.AutoCreate, int32(c.Topics.Partitions), c.Queues.AutoCreate
	s.RetentionBudget = int64(c.Retention.Budget)
	return s
}

func (c *Config) checkAccess(p *problems) {
	a := &c.Admin
	switch {
	case a.Password != "" && a.PasswordHash != "":
		p.add("admin.password", "and admin.password_hash: only one of them")
	case a.User == "" && a.Password+a.PasswordHash != "":
		p.add("admin.user", "empty, but there is a password")
	case a.User != "" && a.Password+a.PasswordHash == "":
		p.add("admin.user", "needs admin.password or admin.password_hash")
	}
	if a.PasswordHash != "" {
		if _, err := auth.ParseHash(a.PasswordHash, kernel.HashNone); err != nil {
			p.add("admin.password_hash", "it is no hash: see trivium hash-password")
		}
	}
	if c.Access.AnonymousUser != "" && !c.Access.Anonymous {
		p.add("access.anonymous_user", "has no effect without access.anonymous")
	}
}
