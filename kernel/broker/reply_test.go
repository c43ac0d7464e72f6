package broker

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/policy"
)

// replyQueue declares a reply queue and consumes from it, as a front-end does.
func replyQueue(t testing.TB, c *Conn) (string, *Member, *inbox) {
	t.Helper()
	name := declare(t, c, QueueSpec{Name: kernel.ReplyName(), Exclusive: true, AutoDelete: true, Again: true}).Name
	m, in := consume(t, c, name, kernel.MemberOptions{AutoSettle: true}, 10)
	return name, m, in
}

// TestReplyQueueNeedsNoRight: who may do nothing has answers all the same; who answers
// needs the right to write to the default exchange. The queue is nobody else's.
func TestReplyQueueNeedsNoRight(t *testing.T) {
	b := open(t, t.TempDir())
	asks := userOf(t, b, "asks", "", "", "")
	name, m, in := replyQueue(t, asks)
	b.recheck()

	p := publisher(t, userOf(t, b, "answers", "", `^amq\.default$`, ""))
	if p.exchange("", name, "one") != 1 {
		t.Error("it is not there")
	}
	in.wait(t, 1)
	mute := userOf(t, b, "mute", "", "", "").Publisher(nil)
	defer mute.Close()
	_, err := mute.ToExchange("", name, &kernel.Record{Value: []byte("no")}, kernel.PublishOptions{}, 0)
	wantCode(t, err, kernel.CodeAccessRefused)

	other := connect(t, b)
	_, err = other.Queue(name)
	wantCode(t, err, kernel.CodeLocked)
	_, err = other.Join(soon(t), kernel.QueueAddress("/", name), kernel.MemberOptions{}, newInbox())
	wantCode(t, err, kernel.CodeLocked)
	_, err = other.DeleteQueue(soon(t), name, false, false)
	wantCode(t, err, kernel.CodeLocked)
	wantCode(t, other.Bind(soon(t), kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: name, Key: "k"}), kernel.CodeLocked)
	_, err = other.DeclareQueue(soon(t), QueueSpec{Name: kernel.ReplyName()})
	wantCode(t, err, kernel.CodeAccessRefused)

	m.Leave()
	if p.exchange("", name, "two") != 0 {
		t.Error("a publish to a reply queue that has gone reached something")
	}
	_, err = other.Queue(name)
	wantCode(t, err, kernel.CodeNotFound)
}

// TestReplyQueuesAreUnlisted: no listing and no policy knows of one.
func TestReplyQueuesAreUnlisted(t *testing.T) {
	b := open(t, t.TempDir())
	putPolicy(t, b, policyOf("all", ".*", kernel.PolicyQueues, policy.MaxLength, int64(1)))
	before := b.Overview()
	c := connect(t, b)
	name, _, _ := replyQueue(t, c)
	after := b.Overview()
	if after.Queues != before.Queues || after.Members != before.Members {
		t.Errorf("%d queues and %d members before, %d and %d after", before.Queues, before.Members, after.Queues, after.Members)
	}
	if _, ok := b.QueueStatus("/", name); ok {
		t.Error("it has a status")
	}
	if n := len(b.QueueStatuses()) + len(b.Groups("/")) + len(b.TopicStatuses("/")) + len(b.Members()); n != 0 {
		t.Errorf("%d things are listed", n)
	}
	c.tenant.mu.Lock()
	g := c.tenant.groups[kernel.QueueAddress("/", name)]
	c.tenant.mu.Unlock()
	topic, err := c.plainTopic(name)
	if err != nil || b.limitsOf(topic.Topic, &g.spec) != nil {
		t.Errorf("a policy limits it, or %v", err)
	}
}
