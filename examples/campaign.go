// Works only while it leads a role, through the agent of this host. No library is needed.
//
// Run with: go run examples/campaign.go /run/tenure/agent.sock scheduler
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	path, role := os.Args[1], os.Args[2]
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	agent := http.Client{Transport: &http.Transport{DialContext: dial}}
	ask, _ := http.NewRequest("GET", "http://localhost/v1/campaign/"+role, nil)
	ask.Header.Set("Tenure-Request", "true")
	answer, err := agent.Do(ask)
	if err != nil || answer.StatusCode != 200 {
		fmt.Fprintln(os.Stderr, "the agent says:", answer, err)
		os.Exit(1)
	}
	events := make(chan event)
	go read(bufio.NewScanner(answer.Body), events)
	var token, deadline = uint64(0), 0.0
	for {
		select {
		case event, open := <-events:
			if !open {
				return // the stream is closed: nothing more will be heard
			}
			switch event.Event {
			case "elected", "renewed":
				token, deadline = event.Token, event.Deadline.Uptime
			case "draining": // stop first, and then say so
				deadline = 0
				ready := strings.NewReader(fmt.Sprintf(`{"token":%d,"campaign":%q}`, event.Token, event.Campaign))
				agent.Post("http://localhost/v1/campaign/"+role+"/ready", "application/json", ready)
			case "lost":
				deadline = 0
			}
		case <-time.After(10 * time.Millisecond):
		}
		if uptime() < deadline { // asked before every piece of work, which carries the token
			fmt.Println("working under token", token)
		}
	}
}

type event struct {
	Event    string
	Token    uint64
	Campaign string // only this stream knows it
	Deadline struct{ Uptime float64 } // by the boot clock of this host, which the agent reads too
}

func read(lines *bufio.Scanner, events chan<- event) {
	defer close(events)
	for lines.Scan() {
		var one event
		text := lines.Text()
		if strings.HasPrefix(text, "data:") && json.Unmarshal([]byte(text[5:]), &one) == nil {
			events <- one
		}
	}
}

func uptime() (seconds float64) {
	text, _ := os.ReadFile("/proc/uptime")
	fmt.Sscan(string(text), &seconds)
	return seconds + 0.01 // the file rounds down: later is safer
}
