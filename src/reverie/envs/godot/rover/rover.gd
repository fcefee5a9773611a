extends Node2D
# A rover with inertia on a plateau: each beacon it reaches pays 1, and driving towards it pays the distance gained.
# Falling off the edge costs 1 and ends the episode; 800 frames are a time-out.

const THRUST = 3.0
const DRAG = 0.95
const REACH = 0.15
const FRAMES = 800
const ENOUGH = 5

var random = RandomNumberGenerator.new()
var thrust = Vector2.ZERO
var velocity = Vector2.ZERO
var frames = 0
var beacons = 0
var earned = 0.0
var fallen = false


func action_space():
	return {"thrust": {"size": 2, "action_type": "continuous"}}


func observation_space():
	return {"vector": {"size": [6], "space": "box"}}


func begin(number):
	random.seed = number
	thrust = Vector2.ZERO
	velocity = Vector2.ZERO
	frames = 0
	beacons = 0
	earned = 0.0
	fallen = false
	$Body.position = somewhere()
	$Beacon.position = somewhere()


func observe():
	var place = $Body.position
	var way = $Beacon.position - place
	return {"vector": [place.x, place.y, velocity.x, velocity.y, way.x, way.y]}


func act(action):
	thrust = Vector2(action["thrust"][0], action["thrust"][1])
	earned = 0.0


func reward():
	return earned


func done():
	return fallen or frames >= FRAMES


func info():
	if not done():
		return {}
	var success = beacons >= ENOUGH and not fallen
	return {"truncated": not fallen, "success": success, "summary": {"beacons": beacons}}


func _physics_process(delta):
	if done():
		return
	frames += 1
	var before = $Body.position.distance_to($Beacon.position)
	velocity = (velocity + thrust * THRUST * delta) * DRAG
	$Body.position += velocity * delta
	var after = $Body.position.distance_to($Beacon.position)
	earned += before - after
	if after < REACH:
		beacons += 1
		earned += 1.0
		$Beacon.position = somewhere()
	if max(abs($Body.position.x), abs($Body.position.y)) > 1.0:
		fallen = true
		earned -= 1.0


func somewhere():
	return Vector2(random.randf_range(-0.8, 0.8), random.randf_range(-0.8, 0.8))
