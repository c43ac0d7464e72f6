package admin

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// checkResult answers a health check: 200 with status "ok", 503 with "failed".
func (c *call) checkResult(failed string, more map[string]any) error {
	checkResult(c.w, failed, more)
	return nil
}

func checkResult(w http.ResponseWriter, failed string, more map[string]any) {
	body, status := map[string]any{"status": "ok"}, http.StatusOK
	if failed != "" {
		body["status"], body["reason"] = "failed", failed
		status = http.StatusServiceUnavailable
	}
	for k, v := range more {
		body[k] = v
	}
	answer(w, status, body)
}

// alarmInfo is one alarm of a node.
type alarmInfo struct {
	Node     string `json:"node"`
	Resource string `json:"resource"`
	Detail   string `json:"detail"`
}

// alarmsOf are those about a node's own memory and disk.
func alarmsOf(name string, now *broker.Alarms) (on []alarmInfo) {
	if now.Memory.On {
		on = append(on, alarmInfo{name, "memory", now.Memory.Reason})
	}
	if now.Disk.On {
		on = append(on, alarmInfo{name, "disk", now.Disk.Reason})
	}
	return on
}

// checkAlarms is GET /api/health/checks/alarms: any in the cluster. A node that does
// not serve fails it as well. That one has just begun to is no alarm.
func checkAlarms(c *call) error {
	now := c.s.node.Present()
	on := alarmsOf(c.s.name(), now)
	if now.Replicas.On {
		on = append(on, alarmInfo{c.s.name(), "replicas", now.Replicas.Reason})
	}
	if c.s.cfg.Peers != nil {
		for _, n := range c.s.cfg.Peers() {
			if n.Low && n.Name != c.s.id() {
				on = append(on, alarmInfo{c.s.nodeName(n.Name), "disk", "the node has told that its disk is low"})
			}
		}
	}
	if len(on) == 0 {
		return checkServing(c)
	}
	return c.checkResult("There are alarms in effect in the cluster", map[string]any{"alarms": on})
}

// localAlarms is why the check of a node's own alarms fails, in RabbitMQ's words.
const localAlarms = "There are alarms in effect on the node"

// checkLocalAlarms is GET /api/health/checks/local-alarms at the node that serves: its
// own. Another one answers by itself, see Gate.
func checkLocalAlarms(c *call) error {
	if on := alarmsOf(c.s.name(), c.s.node.Present()); len(on) > 0 {
		return c.checkResult(localAlarms, map[string]any{"alarms": on})
	}
	return checkServing(c)
}

// checkServing is for the checks that ask whether the node serves: virtual-hosts.
func checkServing(c *call) error {
	if err := c.s.node.Ready(); err != nil {
		return c.checkResult(err.Error(), nil)
	}
	return c.checkResult("", nil)
}

// checkCritical is for the checks that ask whether the cluster would lose its majority
// with one node more that is down. As all queues have their replicas on all nodes that
// vote, it is the same for each of these.
func checkCritical(c *call) error {
	voters, up := 0, 0
	if c.s.cfg.Peers != nil {
		for _, n := range c.s.cfg.Peers() {
			for _, r := range n.Replicas {
				if r.Votes {
					voters++
					if n.State != kernel.NodeUnreachable && n.State != kernel.NodeRefused {
						up++
					}
					break
				}
			}
		}
	}
	switch {
	case voters <= 1:
		return c.checkResult("", map[string]any{"reason": "single node cluster"})
	case up-1 <= voters/2:
		return c.checkResult("There would be no majority if one more node was shut down", nil)
	}
	return c.checkResult("", nil)
}

// checkPort is GET /api/health/checks/port-listener/{port}.
func checkPort(c *call) error {
	port, err := strconv.Atoi(c.args[0])
	if err != nil {
		return badRequest("Invalid port")
	}
	ports := []int{}
	list, _ := c.s.listeners("")
	for _, l := range list {
		if l.Port == port {
			return c.checkResult("", map[string]any{"port": port})
		}
		ports = append(ports, l.Port)
	}
	return c.checkResult("No active listener", map[string]any{"missing": port, "ports": ports})
}

// listenerNames are other names that RabbitMQ has for our listeners.
var listenerNames = map[string]string{
	"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "mqtt3.1.1": "mqtt", "mqtt311": "mqtt", "http/management": "http", "management": "http",
}

// checkProtocol is GET /api/health/checks/protocol-listener/{protocol}.
func checkProtocol(c *call) error {
	name := c.args[0]
	if known, ok := listenerNames[name]; ok {
		name = known
	}
	protocols := []string{}
	list, _ := c.s.listeners("")
	for _, l := range list {
		if l.Protocol == name {
			return c.checkResult("", map[string]any{"protocol": name})
		}
		protocols = append(protocols, l.Protocol)
	}
	return c.checkResult("No active listener", map[string]any{"missing": c.args[0], "protocols": protocols})
}

// alivenessQueue is the queue that the aliveness test uses, as in RabbitMQ.
const alivenessQueue = "aliveness-test"

// checkAliveness is GET /api/aliveness-test/{vhost}: it declares a queue,
// publishes to it and gets the message.
func checkAliveness(c *call) error {
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		if _, err := conn.DeclareQueue(c.r.Context(), broker.QueueSpec{Name: alivenessQueue}); err != nil {
			return err
		}
		r, _, err := c.s.cfg.Mapper.Record("", alivenessQueue, nil, []byte("test_message"), c.user.Name)
		if err != nil {
			return err
		}
		out := make(outcome, 1)
		p := conn.Publisher(out)
		defer p.Close()
		conn.Gathered(c.r.Context())
		if _, err := p.ToExchange("", alivenessQueue, r, kernel.PublishOptions{Mandatory: true}, 0); err != nil {
			return err
		}
		if err := out.wait(c); err != nil {
			return err
		}
		m, err := conn.Join(c.r.Context(), kernel.QueueAddress(c.args[0], alivenessQueue), kernel.MemberOptions{Pull: true, AutoSettle: true}, nil)
		if err != nil {
			return err
		}
		defer m.Leave()
		got := 0
		if err := m.Acquire(1, func(batch []kernel.Delivery, _ int64) { got = len(batch) }); err != nil {
			return err
		}
		if got == 0 {
			return fmt.Errorf("aliveness test in %q: the message is not there", c.args[0])
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.checkResult("", nil)
}
